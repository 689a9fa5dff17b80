"""An App by its name, and the name of an App: how other processes find the same tasks."""

import importlib
import sys
from pathlib import Path

from jobwell.app import App
from jobwell.core.errors import JobwellError, SettingsError


def load_app(target: str) -> App:
    """Import an App.

    Args:
        target: "package.module:attribute"; the attribute may be left out where the module has one App.

    Raises:
        SettingsError: it cannot be found; the sentence says which part.
    """
    module_name, _, attribute = target.partition(":")
    if not module_name:
        raise SettingsError("no app is named; say which, like `shop.jobs:app`, or set app in jobwell.toml")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise SettingsError(f"there is no module {error.name!r} here (looked from {Path.cwd()})") from None
        raise SettingsError(f"{module_name} cannot be imported: {error}") from error
    except JobwellError:
        raise
    except Exception as error:
        raise SettingsError(f"{module_name} cannot be imported: {type(error).__name__}: {error}") from error
    if attribute:
        found = getattr(module, attribute, None)
        if not isinstance(found, App):
            kind = "there is none" if found is None else f"it is a {type(found).__name__}"
            raise SettingsError(f"{target}: {attribute!r} must be a jobwell.App; {kind}")
        return found
    apps = {name: value for name, value in vars(module).items() if isinstance(value, App)}
    if len(set(map(id, apps.values()))) != 1:
        raise SettingsError(f"{module_name} has {len(apps) or 'no'} App(s); say which, like `{module_name}:app`")
    return next(iter(apps.values()))


def name_of(app: App) -> str | None:
    """Where another process finds this App: "module:attribute"; None where no module holds it."""
    for name, module in list(sys.modules.items()):
        if name in ("__main__", "__mp_main__"):  # another process has another one
            continue
        for attribute, value in list(getattr(module, "__dict__", {}).items()):
            if value is app:
                return f"{name}:{attribute}"
    return None
