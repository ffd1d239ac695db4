"""The plug-in for servers that a script starts, as if its wheel were installed: from the source tree and a built library."""
import os
import pathlib

HERE = pathlib.Path(__file__).resolve().parent
PACKAGES = HERE.parents[1] / "sync" / "python"
ARGUMENTS = ["--weight-transfer-config", '{"backend": "tandem"}']


def install(folder, library):
    """For child processes of this one. `folder` gets the entry point; `library` is libtandem_sync.so."""
    info = folder / "plugin" / "tandem_plugin-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tandem-plugin\nVersion: 0\n")
    (info / "entry_points.txt").write_text(
        "[vllm.general_plugins]\ntandem = tandem_vllm:register\ntandem_faults = vllm_faults:register\n")
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(info.parent), str(PACKAGES), str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    os.environ["TANDEM_FAULT"] = str(folder / "fault")
    os.environ["TANDEM_SYNC_LIBRARY"] = str(pathlib.Path(library).resolve())
