#!/usr/bin/env python3
"""Writes tests/golden/data/tokenizer/jinja_table.json: what Jinja 3.1.6, set up as transformers 5.24 does it, makes of
the expressions and templates below, which go through filters, tests, methods, statements and the lexer one by one.
[template, text]; a text of null: Jinja raises an exception, or the row is in REFUSED_HERE.

    tests/golden/make_jinja_table.py        needs transformers 5 and jinja2 3.1.6
"""
import json
import pathlib

from transformers.utils.chat_template_utils import _compile_jinja_template

FILE = pathlib.Path(__file__).parent / "data" / "tokenizer" / "jinja_table.json"
VARIABLES = {
    "a": [1, 2, 3, 4], "e": [], "n": None, "flag": True, "f": 2.5, "s": "  Hello, Wörld 😀 ", "t": "a-b--c", "w": "the quick brown fox's tail",
    "d": {"x": 1, "y": [True, None], "items": "own", "B": 2}, "big": 18446744073709551615, "least": -9223372036854775808, "huge": 36893488147419103232,
    "m": [{"role": "user", "content": "x"}, {"role": "tool", "content": "y"}, {"role": "user", "content": "Z"}],
    "tree": [{"v": 1, "kids": [{"v": 2, "kids": []}, {"v": 3, "kids": [{"v": 4}]}]}, {"v": 5}],
}

# One expression a line, "␤" for a newline in a string.
EXPRESSIONS = r"""
(1, 2)
(1,)
()
1, 2
('a', [1, (2,)])
(1, 2) == [1, 2]
(1, 2) == (1, 2)
(1, 2) + (3,)
(1, 2) * 2
[1] + (2,)
(1, 2)[0]
(1, 2)[1:]
(1, 2) | length
(1, 2) | list
(1, 2, 1).count(1)
(1, 2).index(2)
(1, 2) < (1, 3)
[1, 2] < (1, 3)
(1, 2) is sequence
(1, 2) is iterable
(1, 2) is string
1 in (1, 2)
(1, 2) | tojson
range(3)
range(1, 10, 3)
range(5, 0, -2) | list
range(10)[2:5]
range(10)[::-2]
range(10)[3]
range(10)[-1]
range(10)[10]
range(3) | length
range(0) | length
3 in range(5)
3.0 in range(5)
'x' in range(5)
range(3) == range(3)
range(3) == [0, 1, 2]
range(0) == range(5, 5)
range(3) | sum
range(3) | string
range(3) is sequence
range(3) is iterable
range(3) | join(',')
range(3) | reverse | list
range(3) | first
range(3) | last
range(3).start ~ range(3).stop ~ range(3).step
range(3).count(2)
range(3).index(2)
range(3) or 1
range(0) or 1
range('a')
range(1, 2, 0)
range(100001)
range(3) + [1]
range(3) | tojson
{1: 'a'}
{1: 'a'}[1]
{1: 'a'}[1.0]
{1: 'a'}[true]
{1: 'a'}['1']
{1: 'a', 1.0: 'b', true: 'c'}
{(1, 2): 'a'}[(1, 2)]
{(1, 2): 'a'}[1, 2]
{none: 1, true: 2, 1.5: 3}
{[1]: 2}
{{}: 2}
{'a': 1}.get('a')
{1: 2}.get(1)
{1: 2}.get(2)
{1: 2}.get(2, 3)
{1: 2}.get()
{1: 2}.get(1, 2, 3)
{'a': 1}.items()
{'a': 1}.keys()
{'a': 1}.values()
{}.items()
{'a': 1}.items() | list
{'a': 1} | items | list
{'a': 1}.items() | length
{'a': 1}.keys()[0]
'a' in {'a': 1}.keys()
('a', 1) in {'a': 1}.items()
1 in {'a': 1}.values()
{'a': 1}.keys() == {'a': 2}.keys()
{'a': 1}.items() == {'a': 1}.items()
{'a': 1}.values() == {'a': 1}.values()
{'a': 1}.copy()
{'a': 1}.pop('a')
{'a': 1}.update({'b': 1})
{'a': 1}.items is defined
{'a': 1}.pop is defined
{'a': 1}.nope is defined
{'a': 1} | tojson
{1: 2, 1.5: 3, none: 4, true: 5, 'k': 6} | tojson
{(1, 2): 3} | tojson
{'b': 1, 'a': 2} | tojson(sort_keys=true)
{2: 1, 1: 2} | tojson(sort_keys=true)
{2: 1, 'a': 2} | tojson(sort_keys=true)
{'b': [1, {'c': 2}], 'a': []} | tojson(indent=2)
{'b': [1, {'c': 2}], 'a': {}} | tojson(indent=0)
[1, [2]] | tojson(indent=-1)
[1, [2]] | tojson(indent='--')
[1, [2]] | tojson(indent=true)
[1, 2] | tojson(separators=(',', ':'))
[1, 2] | tojson(separators=[';', ':'])
[1, {'a': 2}] | tojson(indent=1, separators=(' ,', ' : '))
'é😀\x7f\x01"\\/' | tojson
'é😀\x7f\x01"\\/' | tojson(ensure_ascii=true)
'é' | tojson(true)
'<&>' | tojson
'é' | tojson(nope=true)
1e400 | tojson
-1e400 | tojson
(1e400 - 1e400) | tojson
1e400
-1e400
nothing | tojson
range | tojson
dict | tojson
('x' | safe) | tojson
'\u2028' | tojson
1e16
1e15
123456789.123
1e-5
0.0001
-0.0
1.0
1e22
1.5e300
0.1 + 0.2
1 / 3
2 / 1
7 // 2
-7 // 2
7 // -2
-7 % 3
7 % -3
7.5 // 2
-7.5 // 2
7.5 % -2
-7.5 % 2
0.0 // 1
-1 // 5.0
5 % 0
5 / 0
5.0 // 0
2 ** 10
2 ** -1
2 ** 0.5
(-8) ** 2
-2 ** 2
0 ** 0
2 ** 64
2 ** 100
2 ** 126 - 1 + 2 ** 126
10 ** 30
18446744073709551615
18446744073709551616
-9223372036854775808
9223372036854775807 + 1
9223372036854775807 * 2
9999999999 * 9999999999
170141183460469231731687303715884105727
big
big + 1
big * 2
-big
big | tojson
big | int
big | string | length
big // 10
big % 10
big == 18446744073709551615
big == 18446744073709551616
big > least
big == big | float
big - 1 < big
least
least - 1
huge
huge + huge
huge | tojson
[huge, least] | tojson
[big]
'%d' % big
'{:,}'.format(big)
'{:x}'.format(big)
'18446744073709551616' | int
'-99999999999999999999' | int
1e20 | int
1e18 | int
true + true
true * 3
-true
+true
+1
+'a'
-'a'
true == 1
true == 1.0
1 == 1.0
1 == '1'
0x1F
0xff_ff
0b101
0o17
1_000
1_0.5
1e3
1E3
1.5e-3
1e+3
00
007
0x
'a' 'b' "c"
'\x41\u00e9\U0001F600\101\0'
'\N{BULLET}\N{LATIN SMALL LETTER A}'
'\N{NOPE}'
'\x4'
'\u00'
'\q\''
'\é'
'\a\b\f\v\r\n\t' | tojson
'a␤b'
"it's" ~ 'a"b'
["it's", 'a"b', 'both\'"']
['\x00\x7f\x80\xa0\xad\u200b\u2028\ue000\U0010ffff', '😀é\u3000']
'a\\b'
['a\\b']
1 < 2 < 3
1 < 2 > 3
1 < 3 > 2 == 2
1 == 1 in [1]
1 < 'a'
none < 1
[1] < [1, 2]
'a' < 'B'
'ä' > 'z'
1 in a and 5 not in a
not 1 in a
none in a
none in none
1 in 5
1 in 'abc'
'' in 'abc'
'x' in nothing
'x' in d
d in [d]
n == none
nothing == nothing
nothing == none
nothing is none
nothing
nothing.x
nothing[0]
nothing()
nothing + 1
nothing ~ 'x'
nothing < 1
-nothing
nothing | length
nothing | list
nothing | join
nothing | upper
nothing | int
nothing | default('x')
nothing | default
'' | default('x')
'' | default('x', true)
none | default('x')
none | default('x', boolean=true)
none | d('x', true)
nothing | first
nothing | sum
nothing | string
nothing | abs
nothing | tojson
[nothing]
nothing is defined or 'x'
nothing and 1
(1 if false)
(1 if false) is defined
(1 if false).x
1 if false else 2 if false else 3
n.x
n.x.y
n.x is defined
n['x']
n[0]
n[1:2]
5 .x
5[0]
5[1:2]
'abc'[5]
'abc'['x']
'abc'[1:]
'abc'[::-1]
'abcdef'[::2]
'abcdef'[4:1:-1]
'abcdef'[-3:]
'abcdef'[:-3]
'äöü😀'[1:3]
'äöü😀'[-1]
'abc'[none:2]
'abc'[::0]
'abc'['a':]
a[1:][0]
a[::-1]
a[-2:]
a[5:]
a[3:0:-2]
a[true]
a[1.0]
a['0']
a[99]
a[-99]
a.0
a.1
d.x
d['x']
d.items
d['items']
d.items()
d.items() | list
d.x.y
d.missing
d.missing.y
d['missing'] is defined
d.__class__
d.__class__.x
''.__class__
''.__class__()
a.append
a.append(1)
a.index(3)
a.index(9)
a.index(1, 1)
a.count(1)
a.copy()
a.sort()
a.sort is defined
f.is_integer()
(5).bit_length()
big.bit_length()
(5).real ~ (5).imag ~ (5).numerator
5.5.real
true.real
d | attr('x')
d | attr('items') is defined
m[0] | attr('role')
'abc' | attr('upper') is defined
('abc' | attr('upper'))()
d | attr('__class__')
(d | attr('x')) is defined
namespace(x=1) | attr('x')
namespace(x=1).x
namespace({'x': 1}, y=2)
namespace(_x=1)
namespace(x=1)['x']
namespace(x=1).nope is defined
namespace() is mapping
namespace() is iterable
'x' in namespace(x=1)
namespace(x=1) | length
dict(a=1, b=2)
dict({'a': 1}, b=2)
dict([('a', 1), ['b', 2]])
dict({1: 2})
dict.fromkeys(['a', 'b'])
dict.fromkeys('ab', 0)
dict(1)
cycler('a', 'b').next()
cycler()
joiner()() ~ 'x'
lipsum is defined
strftime_now('%%')
strftime_now('')
strftime_now(1)
strftime_now()
raise_exception('no')
raise_exception()
unknown()
'%s has %d' % ('x', 2)
'%s' % 'a'
'%s' % none
'%s' % [1, 2]
'%s' % ((1, 2),)
'%s' % (1, 2)
'%s %s' % (1,)
'%s' % nothing
'x' % []
'x' % [1]
'x' % 1
'x' % ()
'%%' % ()
'%d%%' % 5
'%5d|%-5d|%05d|%+d|% d' % (1, 2, 3, 4, 5)
'%x %X %o %#x %#o' % (255, 255, 8, 255, 8)
'%e %E %f %F %g %G' % (1234.5, 1234.5, 1.5, 1.5, 0.00001, 1e20)
'%.2f %8.3f|%-8.1f|%08.2f|%+.0f' % (1.005, 3.14159, 2.55, -1.5, 2.5)
'%.3s|%5s|%-5s|%r|%a' % ('abcdef', 'a', 'b', "x'", 'é')
'%c%c' % (65, 'B')
'%c' % 'ab'
'%(k)s-%(v)05d' % {'k': 'a', 'v': 3}
'%(k)s' % {'x': 1}
'%(k)s' % 1
'%d' % 3.99
'%d' % -3.99
'%d' % 'a'
'%x' % 1.5
'%f' % 'a'
'%f' % 1
'%s' % true
'%d' % true
'%.3d' % 5
'%y' % 1
'%' % 1
'%i %u' % (3, 4)
'%5s|%5d' % ('é', -3)
'%f' % 1e400
'%g' % 100000
'%g' % 1000000
'%#g' % 1
'%05.2f' | format(3.14159)
'%s, %s!' | format('a', 'b')
'%(x)s' | format(x=1)
'%s' | format
'%(x)s' | format(1, x=1)
'{} {}'.format(1, 'a')
'{0}{1}{0}'.format('a', 'b')
'{x} {y}'.format(x=1, y=[1])
'{} {0}'.format(1)
'{}'.format()
'{0.real} {1[0]} {2[k]}'.format(5, [7], {'k': 8})
'{0.__class__}'.format(5)
'{!r} {!s} {!a}'.format('é', 'x', 'é')
'{{}} {{{}}}'.format(1)
'{:>5}|{:<5}|{:^5}|{:*^7}'.format('a', 'b', 'c', 'd')
'{:5}|{:5}'.format('a', 1)
'{:05d}|{:+d}|{: d}|{:,d}|{:_d}'.format(1, 2, 3, 1234567, 1234567)
'{:x}|{:X}|{:#x}|{:o}|{:b}|{:#b}|{:c}'.format(255, 255, 255, 8, 5, 5, 65)
'{:.2f}|{:.0f}|{:8.3f}|{:08.2f}|{:,.2f}|{:%}|{:.1%}'.format(3.14159, 2.5, 2.5, -2.5, 1234567.891, 0.25, 0.256)
'{:e}|{:.2E}|{:g}|{:g}|{:.3}|{:.3}|{:10.4}|'.format(12345.678, 0.00012, 1e20, 0.0001, 3.14159, 100.0, 2.0)
'{}|{:.3}|{:5.1}|'.format('abc', 'abcdef', 'xyz')
'{:{}}|{:{w}.{p}f}'.format('a', 5, 3.14159, w=8, p=2)
'{:d}'.format(1.5)
'{:d}'.format('a')
'{:s}'.format(1)
'{:.2}'.format(1)
'{:5}'.format(none)
'{}'.format(none)
'{:}'.format([1])
'{:10}|'.format(true)
'{:d}'.format(true)
'{:zz}'.format(1)
'{'.format(1)
'}'.format(1)
'{a'.format(a=1)
'{a!x}'.format(a=1)
'{:=+6d}|{:<6d}|{:^6d}'.format(5, 5, 5)
'{:06.1f}'.format(-1.25)
'{:n}'.format(5)
'{:.10}'.format(1.0)
'{0[a]}'.format({'a': (1, 2)})
'{:,}'.format(1234.5)
'{:_x}'.format(65535)
s.strip()
s.lstrip() ~ '|'
s.rstrip() ~ '|'
'xxaxx'.strip('x')
'abcba'.strip('ab')
'abc'.strip(none)
'abc'.strip(chars='a')
'abc'.strip(1)
'\u3000a\u200b\x1f '.strip() | tojson
'äöÜß'.upper()
'ÄÖÜ'.lower()
'ΑΣ ΣΑΣ'.lower()
'İ'.lower() | length
'ǆx'.title()
'ǆx'.capitalize()
'ßa'.capitalize()
'hELLO wORLD'.capitalize()
"it's a-b x1y".title()
'日a 1a'.title()
'aBc'.swapcase()
'ß'.casefold()
'abc'.upper('x')
'hello'.center(11) ~ '|'
'hello'.center(10) ~ '|'
'hell'.center(9) ~ '|'
'hello'.center(11, '*')
'ab'.ljust(5) ~ '|'
'ab'.rjust(5, '.')
'ab'.ljust(5, 'xy')
'ab'.ljust(1)
'42'.zfill(5)
'-42'.zfill(5)
'+4'.zfill(2)
'a\tb\tc'.expandtabs()
'a\tb'.expandtabs(4)
'a=b=c'.partition('=')
'a=b=c'.rpartition('=')
'abc'.partition('=')
'abc'.rpartition('=')
'abc'.partition('')
'a=b'.partition('=')[2]
'a b  c'.split()
' a b  c '.split(none, 1)
'a,b,,c'.split(',')
'a,b,,c'.split(',', 1)
'a,b,,c'.split(',', maxsplit=1)
'a,b,,c'.split(sep=',')
'a,b,,c'.split('')
'a,b,,c'.rsplit(',', 1)
' a b  c '.rsplit(none, 1)
'a b c'.rsplit(maxsplit=1)
''.split()
''.split(',')
'a\x0bb\x85c\u2028d'.splitlines()
'a\r\nb\rc\nd'.splitlines()
'a\nb\n'.splitlines(true)
'a\nb\n\n'.splitlines()
''.splitlines()
'a\x1cb\x1db\x1ec\x0cd\u2029e'.splitlines() | length
'-'.join(['a', 'b'])
'-'.join('abc')
'-'.join([1])
'-'.join({'a': 1})
'-'.join(m | map(attribute='role'))
'aXbX'.replace('X', 'y')
'aXbX'.replace('X', 'y', 1)
'abc'.replace('', '-')
'abc'.replace('', '-', 2)
'abc'.replace('b')
'abcabc'.find('c')
'abcabc'.find('c', 3)
'abcabc'.find('c', 0, 2)
'abcabc'.find('c', -2)
'abcabc'.find('')
'abcabc'.find('', 9)
'äöäö'.find('ö', 2)
'abcabc'.rfind('b')
'abcabc'.index('c')
'abcabc'.index('z')
'abcabc'.rindex('a')
'abcabc'.count('a')
'abcabc'.count('a', 1)
'abc'.count('')
'aaa'.count('aa')
'abc'.startswith('ab')
'abc'.startswith(('x', 'a'))
'abc'.startswith(['x', 'a'])
'abc'.startswith('b', 1)
'abc'.startswith('')
'abc'.startswith(1)
'abc'.endswith('bc')
'abc'.endswith(('x', 'c'))
'abc'.endswith('b', 0, 2)
'abc'.removeprefix('a')
'abc'.removesuffix('c')
'abc'.removesuffix('x')
'12'.isdigit() ~ '²'.isdigit() ~ '½'.isdigit() ~ ''.isdigit()
'12'.isdecimal() ~ '²'.isdecimal() ~ '٣'.isdecimal()
'½'.isnumeric() ~ '一'.isnumeric()
'aé'.isalpha() ~ 'a1'.isalpha() ~ ''.isalpha()
'a1'.isalnum() ~ 'a '.isalnum()
' \t'.isspace() ~ ''.isspace()
'A1'.isupper() ~ 'Ab'.isupper() ~ '1'.isupper()
'a1'.islower() ~ 'ǅ'.islower()
'Ab Cd'.istitle() ~ 'AB'.istitle()
'ab'.isascii() ~ 'é'.isascii() ~ ''.isascii()
'a_1'.isidentifier() ~ '1a'.isidentifier()
'ab'.isprintable() ~ 'a\n'.isprintable()
'abc'.encode is defined
'abc'.nope is defined
'abc'.nope()
'abc'.upper is defined
'abc'.upper is callable
3 is even
3 is odd
3.0 is odd
2.5 is odd
'a' is odd
10 is divisibleby 5
10 is divisibleby(3)
10 is divisibleby 0
1 is number
true is number
true is integer
1 is integer
1.0 is integer
1.0 is float
true is boolean
1 is boolean
true is true
1 is true
0 is false
false is false
none is none
'a' is string
d is mapping
a is mapping
a is sequence
d is sequence
'a' is sequence
5 is sequence
nothing is sequence
nothing is iterable
5 is iterable
none is iterable
(a | map('string')) is iterable
(a | map('string')) is sequence
range is callable
nothing is callable
'a' is callable
'abc' is lower
'ABC' is upper
'Abc' is lower
'' is lower
1 is lower
'1' is upper
1 is in a
1 is not in a
1 is eq 1
1 is equalto 1
1 is ne 2
1 is lt 2
1 is lessthan 2
1 is le 1
1 is gt 0
1 is greaterthan 0
1 is ge 1
1 is gt 'a'
none is sameas none
true is sameas true
1 is sameas true
1 is sameas 1
a is sameas a
[1] is sameas [1]
'x' is sameas none
'upper' is filter
'nope' is filter
'even' is test
'nope' is test
'x' is escaped
('x' | e) is escaped
('x' | safe) is escaped
1 is defined()
1 is nope
1 is eq
1 is eq(1, 2)
'x' is string is true
not 'x' is string
a is not string
1 is eq 1 and 2 is eq 2
1 is none or 2
-1 | abs
-1.5 | abs
true | abs
'a' | abs
least | abs
a | batch(2) | list
a | batch(3) | list
a | batch(3, 'x') | list
a | batch(linecount=3, fill_with=0) | list
e | batch(2) | list
a | slice(3) | list
a | slice(3, 'x') | list
a | slice(2) | list
a | slice(0) | list
'abcde' | slice(2) | list
'ab' | center(6) ~ '|'
'ab' | center ~ '|'
'ab' | center(width=4) ~ '|'
5 | center(3) ~ '|'
'aB cD' | capitalize
5 | capitalize
"it's a-b (c) x1y" | title
'hello wORLD' | title
'ÄÖ äö' | title
'x' | count
a | count
d | dictsort
{'b': 1, 'A': 3, 'c': 2} | dictsort
{'b': 1, 'A': 3, 'c': 2} | dictsort(true)
{'b': 1, 'A': 3, 'c': 2} | dictsort(by='value')
{'b': 1, 'A': 3, 'c': 2} | dictsort(false, 'value', true)
{'b': 1} | dictsort(by='x')
{1: 'x', 'a': 'y'} | dictsort
a | dictsort
'<a & "b" \'c\'>' | e
'<a>' | escape
5 | e
none | e
['<' | e]
'<' | e | e
'<' | e | forceescape
'<' | safe | e
('<' | safe) + '<'
'<' + ('<' | safe)
('<' | safe) ~ '<'
('<' | safe) * 2
('<' | safe).upper() + '<'
('<b>' | safe)[0] + '<'
('a<b' | safe).split('<') | map('e') | list
('<' | safe).join(['<', 1])
('a' | safe).replace('a', '<')
['<' | safe, 1] | join('<')
('<' | safe) == '<'
('<' | safe) is string
('<' | safe) | length
('<' | safe) | string
('<' | safe) | replace('<', '>')
('<' | safe) | upper
('<' | safe) | tojson
('a b' | safe).partition(' ')
100 | filesizeformat
1 | filesizeformat
1000 | filesizeformat
1500 | filesizeformat
1024 | filesizeformat(true)
1234567 | filesizeformat
10 ** 20 | filesizeformat
999.9 | filesizeformat
'5000' | filesizeformat
'x' | filesizeformat
a | first
e | first
e | first is defined
'abc' | first
d | first
a | last
'abc' | last
d | last
e | last
(a | map('string')) | first
(a | map('string')) | last
'2.5' | float
'x' | float
'x' | float(1.5)
' 1_0.5 ' | float
'inf' | float
'nan' | float
'1e5' | float
5 | float
true | float
none | float
none | float('x')
e | float
'5' | int
'5.7' | int
'-5.7' | int
' 5 ' | int
'5_0' | int
'_5' | int
'1e3' | int
'x' | int
'x' | int(7)
'0x1A' | int(base=16)
'1A' | int(0, 16)
'0x1A' | int(base=0)
'0b11' | int(base=2)
'0o17' | int(base=8)
'z' | int(base=36)
'12' | int(base=1)
'012' | int
'012' | int(base=0)
'٣' | int
'inf' | int
'nan' | int
1e400 | int
5.9 | int
-5.9 | int
true | int
none | int
none | int(1)
e | int
'' | int
'12abc' | int
'0x1A' | int
m | groupby('role')
m | groupby('role') | map(attribute='grouper') | list
(m | groupby('role'))[1].list | length
m | groupby('nope', default='q')
m | groupby('content')
m | groupby('content', case_sensitive=true)
m | groupby(attribute='role')
['a', 'B', 'A'] | groupby(0)
'a\nb' | indent
'a\n\nb\n' | indent
'a\n\nb' | indent(2, true)
'a\n\nb' | indent(2, blank=true)
'a\nb' | indent('> ')
'a\nb' | indent('> ', true)
'a\r\nb\x0bc' | indent(1)
'' | indent(2, true) ~ '|'
5 | indent
'a\nb' | indent(width=2, first=true)
a | join
a | join(', ')
a | join(1)
m | join(',', 'role')
m | join(',', attribute='content')
d | join('-')
'abc' | join('-')
n | join
[1, none, 'x', nothing] | join('|')
[[1], (2,)] | join(' ')
5 | length
a | list
'abc' | list
d | list
n | list
5 | list
'ABC' | lower
[1, 'A'] | lower
a | map('string') | list
a | map('string') | join
a | map('string')
a | map('nope') | list
m | map(attribute='role') | list
m | map(attribute='nope') | list
m | map(attribute='nope', default='q') | list
m | map(attribute='role.x') | list
tree | map(attribute='kids.0.v', default=0) | list
[[1, 2], [3, 4]] | map(attribute=1) | list
[[1, 2], [3, 4]] | map(attribute='1') | list
a | map | list
a | map(nope='x') | list
['a', 'b'] | map('upper') | list
['a1', 'b1'] | map('replace', '1', '2') | list
['x', 'y'] | map('default', 'z') | list
n | map('upper') | list
e | map('nope') | list
5 | map('upper') | list
(a | map('string'))[0]
(a | map('string')) | length
(a | map('string')) and 1
(e | map('string')) and 1
(a | select('odd')) == [1, 3]
a | max
a | min
['b', 'A'] | min
['b', 'A'] | min(true)
['b', 'A'] | max
m | max(attribute='content')
m | min(attribute='content')
e | max
e | max is defined
[1, 'a'] | max
['a', 'A'] | max
a | pprint
'x' | pprint
a | reject('odd') | list
m | rejectattr('role', 'equalto', 'user') | list
m | rejectattr('nope') | list | length
'aXb' | replace('X', 'y')
'aXbX' | replace('X', 'y', 1)
'aXbX' | replace(old='X', new='y', count=1)
5 | replace(5, 6)
'abc' | replace('b', 1)
'abc' | replace('b')
a | reverse
a | reverse | list
'abc' | reverse
'äö😀' | reverse
d | reverse | list
5 | reverse
n | reverse
(a | map('string')) | reverse
2.5 | round
3.5 | round
2.55 | round(1)
2.675 | round(2)
1234.5 | round(-2)
1250.0 | round(-2)
1350 | round(-2)
1250 | round(-2)
1150 | round(-2)
5 | round
5 | round(1)
2.1 | round(0, 'ceil')
2.9 | round(0, 'floor')
2.123 | round(2, 'ceil')
2.129 | round(2, 'floor')
-2.5 | round
2.5 | round(method='ceil')
2.5 | round(1, 'x')
'2.5' | round
true | round
1e300 | round(2)
5 | round(method='ceil')
12345 | round(-2, 'floor')
a | select('odd') | list
a | select('divisibleby', 2) | list
[0, 1, '', 'x', none] | select | list
[0, 1, '', 'x'] | reject | list
a | select('gt', 2) | list
a | select('>', 2) | list
a | select('in', [1, 2]) | list
a | select('nope') | list
a | select
m | selectattr('role', 'equalto', 'user') | map(attribute='content') | list
m | selectattr('role', '==', 'user') | list | length
m | selectattr('role', 'in', ['tool']) | list
m | selectattr('nope', 'defined') | list
m | selectattr('role') | list | length
m | selectattr | list
m | selectattr('role', 'upper') | list
(m | selectattr('role', '==', 'none')) and 'truthy'
n | selectattr('x') | list
['b', 'A', 'c'] | sort
['b', 'A', 'c'] | sort(case_sensitive=true)
['b', 'A', 'c'] | sort(true)
m | sort(attribute='content') | map(attribute='content') | join
m | sort(attribute='role,content') | map(attribute='content') | join
m | sort(attribute='role', reverse=true) | map(attribute='content') | join
m | sort(true, attribute='role') | map(attribute='content') | join
[3, 1, 2] | sort
[3, 'a'] | sort
[(2, 'a'), (1, 'b')] | sort
d | sort
'cab' | sort
[1.5, 1, true] | sort
n | sort
5 | string
'x' | string
[1] | string
'<b>a</b> &amp; c <!-- x -->' | striptags
'a < b' | striptags
'a  b' | striptags
'&lt;x&gt; &quot;' | striptags
a | sum
f | sum
[1.5, 2] | sum
m | sum('role')
[{'x': 1}, {'x': 2}] | sum(attribute='x')
[{'x': 1}, {'x': 2}] | sum('x', 10)
e | sum
[[1], [2]] | sum(start=[])
['a'] | sum
['a'] | sum(start='')
' x ' | trim ~ '|'
'xax' | trim('x')
'xax' | trim(chars='x')
5 | trim
'xax' | trim('x', 'y')
w | truncate(10)
w | truncate(10, true)
w | truncate(10, true, '…')
w | truncate(10, leeway=20)
w | truncate(10, false, '', 0)
w | truncate(2)
'short' | truncate(5)
'äöüäöüäöüäöü' | truncate(5, true)
5 | truncate
[1, 2, 1, 1.0, true] | unique | list
['a', 'A', 'b'] | unique | list
['a', 'A', 'b'] | unique(true) | list
m | unique(attribute='role') | map(attribute='content') | list
[[1], [1]] | unique | list
[(1,), (1,)] | unique | list
a | unique
'aB' | upper
[1, 'a'] | upper
'a b/c?d=é&' | urlencode
{'a b': 1, 'c': 'd/e'} | urlencode
[('a', 1)] | urlencode
5 | urlencode
nothing | urlencode
w | wordcount
'a_b c-d é1' | wordcount
'' | wordcount
w | wordwrap(10)
w | wordwrap(10, true, '|')
'abcdefghijkl mno' | wordwrap(5)
'abcdefghijkl mno' | wordwrap(5, false)
'a\n\nb  c' | wordwrap(3)
'  a b' | wordwrap(3)
'aaa bbb ccc' | wordwrap(7, wrapstring='<br>')
{'a': 1, 'b': none, 'c': '<"'} | xmlattr
{'a': 1} | xmlattr(false)
{'a b': 1} | xmlattr
{} | xmlattr
a | nope
a | upper(1)
a | join(nope=1)
a | first(1)
a | items | list
d | items | list
n | items | list
nothing | items | list
d | items
loop
loop is defined
self is defined
caller is defined
varargs is defined
true and 1
0 or 'x'
not 0
not none
'a' * 3
3 * 'a'
'a' * -1
[1, 2] * 2
2 * [1]
'a' * 'b'
'a' + 1
'a' - 'b'
1 ~ 2 ~ none ~ true ~ 1.0
[1] + [2]
{'a': 1} + {'b': 2}
(1).__add__(2)
dict
range
a | map
m | first | attr('content')
"{}".format
'a'.join
1 if a else
[1, 2, 3,]
[,]
{'a': 1,}
{'a' 1}
{'a': 1, **{}}
[*a]
f'a'
a[1
(1, 2
'a
{1, 2}
a if b else
lambda x: x
x = 1
1 1
a.b.
a..b
a!b
a @ b
a && b
a || b
!a
a ? b : c
a;b
[x for x in a]
a | upper()
a | (upper)
range(*[1, 4]) | list
dict(**{'a': 1})
range(1, *[4, 2]) | list
'{}{x}'.format(*[1], **{'x': 2})
range(**{'a': 1})
é
"é".é is defined
True and False or None
TRUE
nOne is defined
if
not
""" + r"""
a[0:2, 1]
a[]
'a' if 'b'
'x'.__class__.__mro__
''|attr('__class__')
(1, 2).__class__
none ~ none
[true, false, none, 1.0, 'x', (1,), {}, []]
{'a': {'b': (1, [2])}}
big ~ ''
{'a': big} | tojson
[1, 2, 3] is sameas [1, 2, 3]
d | list | sort
'%s' % {'a': 1}
'%(a)s %%' % {'a': 1}
'%s %(a)s' % {'a': 1}
"%-10s|" % "é"
'%s' % ('a' | safe)
'abc' | list | reverse | join
m | map('attr', 'role') | list
m | map('items') | map('list') | list
m | map('length') | sum
m | map('tojson') | join(',')
a | map('multiply') | list
(a | list).index(2)
a == a | list
[3, 1] | sort | first
'b,a' | replace(',', '\n') | indent(2)
{'a': 1}['a'] if {'a': 1} else 0
(a | join(',')).split(',') | map('int') | sum
'x'.join(['1', '2']).replace('x', '-').upper()
"a" in ("a", "b") and "c" not in ["a"]
1.0 | int
'1.0' | int
1.5 | string
10 / 4 | round
(10 / 4) | round | int
7 | string | length
'abc'.upper().lower().title()
'a,b;c'.replace(';', ',').split(',')[-1]
""".strip("\n")

TEMPLATES = [
    # macros
    "{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, k=3) }}", "{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(b=3, a=4) }}{{ m() }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}", "{% macro m(a, b) %}{{ kwargs }}{% endmacro %}{{ m(1, a=2) }}",
    "{% macro m(a, a) %}{% endmacro %}", "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m(a, b=a) %}{{ b }}{% endmacro %}{{ m(3) }}", "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{{ varargs }}{% endmacro %}{{ m() }}{{ m(1) }}{{ m(1, 'a') }}", "{% macro m() %}{{ kwargs }}{% endmacro %}{{ m(x=1) }}", "{% macro m(varargs) %}{{ varargs }}{% endmacro %}{{ m(1) }}", "{% macro m(kwargs=5) %}{{ kwargs }}{% endmacro %}{{ m() }}",
    "{% macro m(a, b=1) %}{% endmacro %}{{ m.name }}{{ m.arguments }}{{ m.catch_kwargs }}{{ m.catch_varargs }}{{ m.caller }}", "{% macro m() %}x{% endmacro %}{{ m }}", "{% macro m() %}x{% endmacro %}{{ m is callable }}{{ m is defined }}",
    "{% macro f(x) %}{{ outer }}{% endmacro %}{% set outer = 7 %}{{ f(1) }}{% set outer = 8 %}{{ f(1) }}", "{% for i in a %}{% macro f() %}{{ i }}{% endmacro %}{{ f() }}{% endfor %}", "{% macro f() %}{% set x = 1 %}{% endmacro %}{{ f() }}{{ x }}",
    "{% macro f() %}{{ loop is defined }}{% endmacro %}{% for i in [1] %}{{ f() }}{% endfor %}", "{% for i in [1] %}{% macro f() %}{{ loop.index }}{% endmacro %}{{ f() }}{% endfor %}", "{% macro r(k) %}{% if k %}{{ k }}{{ r(k - 1) }}{% endif %}{% endmacro %}{{ r(4) }}",
    "{% macro m() %}<b>{% endmacro %}{{ m() | e }}", "{% macro m() %}x{% endmacro %}{{ m() is string }}{{ m() is escaped }}", "{{ m() }}{% macro m() %}x{% endmacro %}", "{% macro m() %}x{% endmacro m %}", "{% macro m() -%} x {%- endmacro %}[{{ m() }}]",
    "{% macro a1() %}{{ b1() }}{% endmacro %}{% macro b1() %}B{% endmacro %}{{ a1() }}", "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(*[5]) }}{{ m(**{'x': 6}) }}", "{% macro m(x) %}{% for i in x recursive %}{{ i }}{% endfor %}{% endmacro %}{{ m([1, 2]) }}",
    "{% set ns = namespace() %}{% macro f() %}F{% endmacro %}{% set ns.f = f %}{{ ns.f() }}", "{% macro f(caller=none) %}{{ caller }}{% endmacro %}{{ f() }}", "{% macro f(caller) %}{% endmacro %}",
    # call
    "{% macro w() %}<{{ caller() }}>{% endmacro %}{% call w() %}in{% endcall %}", "{% macro w(x) %}{{ caller(x, 2) }}{% endmacro %}{% call(a, b=5) w(1) %}{{ a }}-{{ b }}{% endcall %}", "{% macro w() %}{{ caller(1) }}{% endmacro %}{% call(a, b=5) w() %}{{ a }}-{{ b }}{% endcall %}",
    "{% macro w() %}no{% endmacro %}{% call w() %}in{% endcall %}", "{% macro w() %}{{ caller is defined }}{{ caller }}{% endmacro %}{{ w() }}", "{% macro w() %}{{ caller() }}{% endmacro %}{{ w() }}", "{% set q = 3 %}{% macro w() %}{{ caller() }}{% endmacro %}{% call w() %}{{ q }}{% endcall %}",
    "{% macro w() %}{{ caller() }}{{ caller() }}{% endmacro %}{% for i in a %}{% call w() %}{{ i }}{% endcall %}{% endfor %}", "{% call 5 %}x{% endcall %}", "{% macro w() %}{{ kwargs }}{{ caller() }}{% endmacro %}{% call w(k=1) %}x{% endcall %}",
    "{% macro o() %}{% call i() %}[{{ caller is defined }}]{% endcall %}{% endmacro %}{% macro i() %}({{ caller() }}){% endmacro %}{{ o() }}", "{% macro w() %}{{ caller }}{% endmacro %}{% call w() %}x{% endcall %}", "{% for i in a %}{% call range(3) %}{% break %}{% endcall %}{% endfor %}",
    # filter and set blocks, with, print, block
    "{% filter upper %}a{{ m[0].role }}{% endfilter %}", "{% filter replace('a', 'b') | upper %}aa{% endfilter %}", "{% filter trim %} x {% endfilter %}|", "{% filter nope %}x{% endfilter %}", "{% filter upper %}{% set zz = 1 %}{% endfilter %}{{ zz }}", "{% filter length %}abc{% endfilter %}",
    "{% for i in a %}{% filter upper %}x{% if i == 2 %}{% break %}{% endif %}y{% endfilter %}{% endfor %}", "{% set b %}in{{ 1 }}{% endset %}[{{ b }}]", "{% set b | upper | trim %} in {% endset %}[{{ b }}]", "{% set b %}<{% endset %}{{ b is escaped }}{{ b | e }}", "{% set x %}{% set y = 5 %}{{ y }}{% endset %}{{ x }}{{ y }}",
    "{% set ns = namespace() %}{% set ns.x %}abc{% endset %}{{ ns.x }}", "{% for i in a %}{% set x %}q{% if i == 3 %}{% continue %}{% endif %}{{ i }}{% endset %}{{ x }}{% endfor %}", "{% with x = 1, y = 2 %}{{ x }}{{ y }}{% endwith %}{{ x }}", "{% set x = 1 %}{% with x = 2, y = x %}{{ x }}{{ y }}{% endwith %}{{ x }}",
    "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}", "{% print 1, 'a' %}", "{% print %}", "{% block b %}x{{ flag }}{% endblock %}", "{% block b %}x{% endblock b %}", "{% block b %}x{% endblock c %}", "{% for i in [7] %}{% block b %}{{ i }}{% endblock %}{% endfor %}", "{% for i in [7] %}{% block b scoped %}{{ i }}{% endblock %}{% endfor %}",
    "{% block b %}1{% endblock %}{% block b %}2{% endblock %}", "{% set z = 4 %}{% block b %}{{ z }}{% set z = 5 %}{{ z }}{% endblock %}{{ z }}",
    # set and namespaces
    "{% set x, y = 1, 2 %}{{ x }}{{ y }}", "{% set (x, y) = [1, 2] %}{{ x }}{{ y }}", "{% set x, (y, z) = 1, (2, 3) %}{{ x }}{{ y }}{{ z }}", "{% set x = 1, %}{{ x }}", "{% set x, y = [1] %}", "{% set x, y = 'ab' %}{{ y }}{{ x }}", "{% set x = (1 if e) %}{{ x is defined }}", "{% set none = 1 %}", "{% set x.y = 1 %}",
    "{% set ns = namespace(v=0) %}{% for y in a %}{% set ns.v = ns.v + y %}{% endfor %}{{ ns.v }}{{ ns }}", "{% set ns = namespace() %}{% set ns.a, ns.b = 1, 2 %}{{ ns.a }}{{ ns.b }}{{ ns.c is defined }}", "{% set ns = namespace() %}{% set ns._a = 1 %}", "{% set d.q = 1 %}", "{% set ns = namespace(x=[]) %}{{ ns.x }}{{ ns['x'] }}{{ ns == ns }}",
    "{% set x = 1 %}{% for y in a %}{{ x }}{% set x = y %}{{ x }}{% endfor %}{{ x }}", "{% if flag %}{% set q = 3 %}{% endif %}{{ q }}", "{% for y in a %}{% if z is defined %}seen{% endif %}{% set z = y %}{% endfor %}{{ z is defined }}", "{% set x = 1 %}{% set x = x + 1 %}{{ x }}", "{% set a = a + [5] %}{{ a }}", "{% set d = {1: 'a'} %}{{ d[1] }}",
    "{% set range = 5 %}{{ range }}", "{% set loop = 5 %}{{ loop }}", "{% set x = 5 | string %}{{ x }}", "{% set x = 'a' if flag else 'b' %}{{ x }}",
    # for
    "{% for x in a %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }};{% endfor %}", "{% for x in a %}{{ loop.cycle('a', 'b', 'c') }}{% endfor %}", "{% for x in a %}{{ loop.cycle() }}{% endfor %}",
    "{% for x in [1, 1, 2, 2, 1] %}{{ loop.changed(x) }}{% endfor %}", "{% for x in [1, 1, 2] %}{% if loop.changed(x, 'k') %}{{ x }}{% endif %}{% endfor %}", "{% for x in a %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}", "{% for x in a %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}",
    "{% for x in a %}{{ loop }}{% endfor %}", "{% for x in a %}{{ loop.nope is defined }}{{ loop | length }}{% endfor %}", "{% for x in tree recursive %}{{ x.v }}@{{ loop.depth }}{% if x.kids %}[{{ loop(x.kids) }}]{% endif %}{% endfor %}", "{% for x in tree recursive %}{{ x.v }}{{ loop(x.kids) }}{% else %}-{% endfor %}",
    "{% for x in a %}{{ loop([1]) }}{% endfor %}", "{% for x in a if x is odd %}{{ loop.index }}:{{ x }}/{{ loop.length }}{{ loop.last }} {% endfor %}", "{% for x in a if x > 9 %}never{% else %}empty{% endfor %}", "{% for x in e %}never{% else %}empty{% endfor %}", "{% for x in a %}{% break %}{% else %}e{% endfor %}",
    "{% set ns = namespace(stop=false) %}{% for x in a if not ns.stop %}{{ x }}{% if x == 2 %}{% set ns.stop = true %}{% endif %}{% endfor %}", "{% for x in a %}{% if x == 2 %}{% continue %}{% elif x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}", "{% for x in a %}{% for y in a %}{% if y == 2 %}{% break %}{% endif %}{{ y }}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k, v in d | items %}{{ k }}{% endfor %}", "{% for k, v in d | dictsort %}{{ k }}{% endfor %}", "{% for (x, y), z in [((1, 2), 3)] %}{{ x }}{{ y }}{{ z }}{% endfor %}", "{% for x, y in a %}{% endfor %}", "{% for x, y in [[1]] %}{% endfor %}", "{% for x, in [(1,)] %}{{ x }}{% endfor %}",
    "{% for k in d %}{{ k }}{% endfor %}", "{% for c in 'äb😀' %}[{{ c }}]{{ loop.length }}{% endfor %}", "{% for x in 1, 2 %}{{ x }}{% endfor %}", "{% for x in n %}{% endfor %}", "{% for x in 5 %}{% endfor %}", "{% for x in nothing %}{% else %}none{% endfor %}", "{% for x in range(3) %}{{ x }}{{ loop.last }}{% endfor %}",
    "{% for x in a | map('string') %}{{ x }}{{ loop.last }}{{ loop.length }}{% endfor %}", "{% set g = a | map('string') %}{% for x in g %}{{ x }}{% endfor %}|{% for x in g %}{{ x }}{% endfor %}", "{% set g = a | select('odd') %}{{ g | list }}{{ g | list }}", "{% set g = a | map('string') %}{{ g | first }}{{ g | join }}", "{% set g = a | map('string') %}{{ '2' in g }}{{ g | list }}",
    "{% set g = n | map('upper') %}ok", "{% set g = 5 | map('upper') %}ok", "{% set g = a | map('nope') %}ok", "{% set g = a | items %}ok", "{% set g = a | slice(0) %}ok", "{% for x in a | batch(3) %}{{ x }}{% endfor %}", "{% for g in m | groupby('role') %}{{ g.grouper }}{{ g.list | length }}{{ g[0] }}{% endfor %}", "{% for k, l in m | groupby('role') %}{{ k }}{{ l | map(attribute='content') | join }}{% endfor %}",
    "{% for x in a recursive %}{{ loop.depth }}{% endfor %}", "{% for loop in a %}{% endfor %}", "{% for x in a %}{% set x = 9 %}{{ x }}{% endfor %}", "{% for x in a %}{% endfor %}{{ x }}", "{% for x in a: %}{{ x }}{% endfor %}", "{% if flag: %}1{% endif %}", "{% for x in (a if flag else e) %}{{ x }}{% endfor %}", "{% for x in a if flag else e %}{{ x }}{% endfor %}",
    "{% set c = cycler('odd', 'even') %}{% for x in a %}{{ c.next() }}{% endfor %}{{ c.current }}{{ c.reset() }}{{ c.current }}", "{% set j = joiner(', ') %}{% for x in a %}{{ j() }}{{ x }}{% endfor %}", "{% for x in a %}{% if loop.first %}F{% endif %}{{ loop.index is divisibleby 2 }}{% endfor %}",
    # if, lazily refused names
    "{% if a %}1{% elif b %}2{% else %}3{% endif %}", "{% if nothing %}1{% elif n %}2{% else %}3{% endif %}", "{% if flag %}{% else %}{{ x | nope }}{% endif %}ok", "{% if false %}{{ x is nope }}{% endif %}ok", "{% if flag %}{{ 1 | nope }}{% endif %}", "{{ 1 if flag else (x | nope) }}", "{{ (x | nope) if e else 2 }}", "{% for x in e %}{{ x | nope }}{% endfor %}", "{% if false %}{% for x in a %}{{ x | nope }}{% endfor %}{% endif %}ok", "{% macro u() %}{{ 1 | nope }}{% endmacro %}ok",
    "{% if flag if e else 1 %}x{% endif %}", "{% if 1, 2 %}x{% endif %}", "{% if %}x{% endif %}", "{% if x %}", "{% endif %}", "{% else %}", "{% if x %}{% endfor %}",
    # other templates
    "{% include 'x' %}", "{% import 'x' as y %}", "{% from 'x' import y %}", "{% extends 'x' %}", "{% if false %}{% include 'x' %}{% endif %}ok", "{% include 'x' ignore missing %}", "{% include %}", "{% do x %}", "{% trans %}x{% endtrans %}", "{% debug %}", "{% unknown %}", "{% autoescape false %}{{ '<' }}{% endautoescape %}",
    # generation
    "{% generation %}g{{ flag }}{% endgeneration %}", "{% generation %}{% set q = 1 %}{{ q }}{% endgeneration %}{{ q }}", "{% for x in a %}{% generation %}{{ loop.index }}{{ x }}{% endgeneration %}{% endfor %}", "{%- generation -%} g {%- endgeneration -%} x", "{% for x in a %}{% generation %}{% break %}{% endgeneration %}{% endfor %}",
    # white space and the lexer
    "{# c #}x{#- c -#} y", "a {#- c -#} b", "a{# c #}\nb", "  {# c #}\nx", "a {##} b", "a {#-#} b", "a {#--#} b", "{#+ c +#}\nx", "{# {{ x }} {% if %} #}ok", "{# a # } #}x", "a {%- if true -%} b {%- endif -%} c", "a {{- 1 -}} b", "a {{+ 1 }} b", "a\n  {% if true %}\n  b\n  {% endif %}\nc\n", "a\n  {%+ if true %}\n b{% endif +%}\nc", "  {{ 1 }}\n  {{ 2 }}\n",
    "x\n\n", "x\r\ny\r\n", "x\ry", "{% if true %}\n\nx{% endif %}\n", "{% if true %}\r\nx{% endif %}", "\n {%- for x in a -%}\n {{ x }}\n {%- endfor %}\n", "\u3000{%- if true %}x{% endif %}", "  {% set x = 1 %}  \n  {% set y = 2 %}\ny", "\t {% if true %}x{% endif %}", "a {% if true %}x{% endif %}", "{% if true %} {% endif %}x", "{{ '\\n' }}x", "{{ 'a\nb' }}", "{{\n1\n}}", "{%\nif\ntrue\n%}x{% endif %}", "{{1}}{{2}}", "{{ '}}' }}", "{{ '%}' }}", "{{ \"{{\" }}", "{% raw %}{{ x }}{% if %}{% endraw %}!", "  {%- raw -%}  a  {%- endraw -%}  b", "{% raw %}\na{% endraw %}\nb", "{% raw -%}\n a {%- endraw %}\nb", "x\n  {% raw %}a\n  {% endraw %}\nb", "{% raw +%}x{% endraw %}", "{%+ raw %}x{%+ endraw +%}\ny", "{%raw%}x{%endraw%}", "{% raw %}x", "{% raw %}{% raw %}{% endraw %}x", "{ { 1 } }", "{ % if %}", "}} %} #}", "{{ 1 }", "{{ 1", "{% if true", "{# x", "{{ }}", "{{ {'a': {'b': 1}}['a']['b'] }}", "{{ {'a': {'b': 1}} }}", "{{ [[1]] }}", "{{ ((1)) }}", "{{ (1] }}", "{{ 1) }}",
    "{{ a.0.real }}", "{{ [[1, 2]].0.1 }}", "{{ 1.e }}", "{{ 1.0.real }}", "{{ a[0].real }}", "{{- '' -}}", "{{ x", "# line\n## x\n{{ 1 }}", "% if\n{{ 1 }}", "{{ 'é' }}é{{ \"日本\" }}", "\ufeff{{ 1 }}", "{{ 1 }}\n\n\n", "\n", "", " ", "{{ 'a' }}\n{{ 'b' }}", "{{ '' }}\n", "{{ -1 }}{{ - 1 }}{{ +1 }}{{ --1 }}", "{{-1}}", "{{ 1 -1 }}", "{{ 2**-1 }}", "{{ not true }}{{ not not true }}", "{{ true.real }}", "{{ none.x }}", "{{ (none).x is defined }}",
    "{{ raise_exception('x') if false else 'ok' }}", "{{ 'a' 'b' ~ 'c' }}", "{{ a|join(',')|upper~'!' }}", "{{ a | join(',') if a else 'none' }}", "{{ -a[0] }}{{ -a[0] | abs }}{{ 2 * -1 | abs }}", "{{ 'x' | upper is upper }}", "{{ 1 + 1 | string ~ 'a' }}", "{{ 2 ** 3 ** 2 }}", "{{ 10 - 2 - 3 }}", "{{ 1 + 2 ~ 3 + 4 }}", "{{ 2 * 3 ~ 4 }}", "{{ 1 < 2 and 2 < 3 or false }}", "{{ 1 if 0 else 2 if 1 else 3 }}", "{{ a[1:2][0] }}{{ a[:][-1] }}{{ a[ 1 : ] }}", "{{ m[0]['role'] ~ m[-1].content }}", "{{ m[9].role }}", "{{ m[9] is defined }}", "{{ [m][0][0].role }}",
]


def rendered(text):
    try:
        return _compile_jinja_template(text).render(**VARIABLES)
    except Exception:
        return None


def rows():
    for line in EXPRESSIONS.split("\n"):
        if line.strip():
            yield "{{ " + line.replace("␤", "\n") + " }}"
    yield from TEMPLATES


# What Jinja renders and we refuse by name; so is whatever Python prints with an address, another one each time.
REFUSED_HERE = {
    "{{ 5[1:2] }}", "{{ 'abc'['a':] }}",  # Jinja forgives constants what it refuses of variables
    "{{ lipsum is defined }}", "{{ self is defined }}", "{{ 'abc'.encode is defined }}", "{{ a[] }}", "{% macro f(caller) %}{% endmacro %}",
}


def main():
    table = []
    for text in rows():
        result = rendered(text)
        if text in REFUSED_HERE or (result is not None and " at 0x" in result):
            result = None
        table.append([text, result])
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in table)
    FILE.write_text('{"variables": ' + json.dumps(VARIABLES, ensure_ascii=False) + ',\n"rows": [\n' + lines + "\n]}\n")
    print(f"{FILE.name}: {len(table)} rows, {sum(row[1] is None for row in table)} of them refused")


if __name__ == "__main__":
    main()
