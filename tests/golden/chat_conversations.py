"""Conversations that chat templates get: shared by make_chat_template.py and compare_chat_template.py."""

TOOL = {"type": "function", "function": {
    "name": "get_weather", "description": "Says what the weather is like, \"now\" or later.",
    "parameters": {"type": "object", "required": ["city"], "properties": {
        "city": {"type": "string", "description": "Name of the city"},
        "days": {"type": "integer", "description": "How many days", "enum": [1, 2, 3]},
        "unit": {"type": "string", "default": "°C"}}}}}
CALL = {"type": "function", "id": "call00001", "function": {"name": "get_weather", "arguments": {"city": "Köln", "days": 2, "exact": True, "n": None, "x": 1.5}}}


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def system(content):
    return {"role": "system", "content": content}


CONVERSATIONS = [
    {"messages": [user("Hello!")]},
    {"messages": [user("Hello!")], "add_generation_prompt": False},
    {"messages": [system("You are terse."), user("Hello!")]},
    {"messages": [system("  You are terse.\n"), user("  padded \n\n"), assistant(" Hi.\n"), user("And?")]},
    {"messages": [user("a"), assistant("b"), user("c"), assistant("d"), user("e")]},
    {"messages": [user("a"), assistant("b"), user("c"), assistant("d")], "add_generation_prompt": False},
    {"messages": [user("")]},
    {"messages": [system(""), user("x"), assistant(""), user("")]},
    {"messages": [user("Ünï 中文 😀 <|im_end|> {{ x }} {% if %} \\n \"quoted\" 'single' & <b> \t tab")]},
    {"messages": [user("1+1?"), assistant("<think>\nadd them\n</think>\n\n2"), user("2+2?")]},
    {"messages": [user("1+1?"), assistant("2", reasoning_content="add them"), user("2+2?")]},
    {"messages": [user("1+1?"), assistant("<think>\nadd them\n</think>\n\n2")], "add_generation_prompt": False},
    {"messages": [user("Hello!")], "enable_thinking": False},
    {"messages": [user("Hello!")], "enable_thinking": True},
    {"messages": [user("Weather?")], "tools": [TOOL]},
    {"messages": [system("Be brief."), user("Weather?")], "tools": [TOOL, TOOL]},
    {"messages": [user("Weather?"), assistant("", tool_calls=[CALL]),
                  {"role": "tool", "name": "get_weather", "content": "{\"t\": 21}", "tool_call_id": "call00001"}], "tools": [TOOL]},
    {"messages": [user("Weather?"), assistant("Let me see.", tool_calls=[CALL, CALL]),
                  {"role": "tool", "name": "get_weather", "content": "21", "tool_call_id": "call00001"},
                  {"role": "tool", "name": "get_weather", "content": "22", "tool_call_id": "call00001"},
                  assistant("21 and 22."), user("Thanks")], "tools": [TOOL], "add_generation_prompt": False},
    {"messages": [user("Weather?"), {"role": "assistant", "content": None, "tool_calls": [CALL]},
                  {"role": "tool", "name": "get_weather", "content": "21", "tool_call_id": "call00001"}], "tools": [TOOL]},
    {"messages": [assistant("first"), user("second")]},
    {"messages": [user("a"), user("b")]},
    {"messages": [system("a"), system("b"), user("c")]},
    {"messages": [user("a"), {"role": "nobody", "content": "b"}]},
    {"messages": [user([{"type": "text", "text": "part one"}, {"type": "text", "text": "part two"}])]},
    {"messages": [user("x" * 50 + "\n" + "y" * 50)], "date_string": "26 Jul 2024", "tools_in_user_message": False},
    {"messages": []},
    {"messages": [{"role": "user"}]},
]
