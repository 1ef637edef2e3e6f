"""`stoker completion`: scripts for shells that complete commands, options and queue names."""

import click

from stoker.cli.parameters import examples

VARIABLE = "_STOKER_COMPLETE"
SHELLS = ("bash", "zsh", "fish")


@click.command(
    epilog=examples(
        "stoker completion bash > ~/.local/share/bash-completion/completions/stoker",
        "stoker completion zsh > ~/.zfunc/_stoker",
        "stoker completion fish > ~/.config/fish/completions/stoker.fish",
    ),
)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that makes SHELL complete commands, options and names of queues."""
    from click.shell_completion import get_completion_class

    from stoker.cli.main import stoker

    kind = get_completion_class(shell)
    assert kind is not None
    made = kind(stoker, {}, "stoker", VARIABLE)
    click.echo(made.source_template % made.source_vars())
