"""Finds the code under test: the plugin as Hermes loads it, and the installer's modules."""

import importlib.util
import sys
from pathlib import Path

PLUGIN_HERMES = Path(__file__).resolve().parent.parent
PROJECT = PLUGIN_HERMES.parent
SOURCE = PLUGIN_HERMES / "session-slot-router"
INSTALLER = PLUGIN_HERMES / "installer"

if str(INSTALLER) not in sys.path:
    sys.path.insert(0, str(INSTALLER))


def load_plugin(name="hermes_plugins_session_slot_router"):
    """The plugin as a package under another name than its folder's, which is no name for a module."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            name, SOURCE / "__init__.py", submodule_search_locations=[str(SOURCE)]
        )
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]
