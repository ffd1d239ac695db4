"""The plug-ins for servers that a script starts, as if its wheel were installed: from the source tree and a built library."""
import contextlib
import os
import pathlib
import secrets

HERE = pathlib.Path(__file__).resolve().parent
PACKAGES = HERE.parents[1] / "sync" / "python"
VLLM_ARGUMENTS = ["--weight-transfer-config", '{"backend": "tandem"}']
SGLANG_ARGUMENTS = ["--custom-weight-loader", "tandem_sync.sglang.load"]


def add_options(parser):
    parser.add_argument("--plugin", metavar="LIBRARY", help="libtandem_sync.so: the servers run our plug-in with it")
    parser.add_argument("--tcp", action="store_true", help="with --plugin: weights reach its workers over TCP")


def use(options, folder):
    """Installs what the options ask for; what follows a server's URL then."""
    if options.plugin:
        install(folder, options.plugin)
    if options.tcp:
        os.environ |= {"TANDEM_DATA_LISTEN": "127.0.0.1:0", "TANDEM_API_KEY": secrets.token_hex()}
    return "?transport=tcp" if options.tcp else ""


def install(folder, library):
    """For child processes of this one. `folder` gets the entry point; `library` is libtandem_sync.so."""
    info = folder / "plugin" / "tandem_plugin-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tandem-plugin\nVersion: 0\n")
    (info / "entry_points.txt").write_text(
        "[vllm.general_plugins]\ntandem = tandem_sync.vllm:register\ntandem_faults = plugin_faults:register_vllm\n"
        "[sglang.srt.plugins]\ntandem = tandem_sync.sglang:register\ntandem_faults = plugin_faults:register_sglang\n")
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(info.parent), str(PACKAGES), str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    os.environ["TANDEM_FAULT"] = str(folder / "fault")
    os.environ["TANDEM_SYNC_LIBRARY"] = str(pathlib.Path(library).resolve())


@contextlib.contextmanager
def in_workers(folder, name, code):
    """vLLM servers that are started meanwhile run `code`, which has a function register(), in all their processes."""
    (folder / f"{name}.py").write_text(code)
    info = folder / f"{name}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[vllm.general_plugins]\n{name} = {name}:register\n")
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = f"{folder}:{before}"
    try:
        yield
    finally:
        os.environ["PYTHONPATH"] = before
