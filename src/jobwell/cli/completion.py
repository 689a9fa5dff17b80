"""`jobwell completion`."""

import click

SHELLS = click.Choice(["bash", "zsh", "fish"])


@click.command()
@click.argument("shell", type=SHELLS)
def completion(shell: str) -> int:
    r"""Print the script that completes commands, options and choices in SHELL.

    \b
    Once for this shell:
      bash   eval "$(jobwell completion bash)"
      zsh    eval "$(jobwell completion zsh)"
      fish   jobwell completion fish | source
    \b
    For all shells to come:
      bash   jobwell completion bash > ~/.local/share/bash-completion/completions/jobwell
      zsh    jobwell completion zsh > ~/.zfunc/_jobwell      (with fpath+=~/.zfunc before compinit in .zshrc)
      fish   jobwell completion fish > ~/.config/fish/completions/jobwell.fish

    Needs bash 4.4 or newer. Nothing is asked of the database: names of jobs and queues are not completed.
    """
    from click.shell_completion import get_completion_class

    from jobwell.cli import root

    made = get_completion_class(shell)
    assert made is not None
    complete = made(root, {}, "jobwell", "_JOBWELL_COMPLETE")
    click.echo(complete.source_template % complete.source_vars())  # `source` would ask the bash of this machine for its version
    return 0
