"""Completion in bash, where click's own falls short: bash ends words at `@`, `:` and `=`, which revisions contain.

The line is split here instead, and each answer is given without the part that bash takes to be another word. zsh and
fish are click's own.
"""

from __future__ import annotations

import os
from typing import Any

from click.shell_completion import BashComplete, CompletionItem, add_completion_class, split_arg_string

_SCRIPT = """\
%(complete_func)s() {
    local kind value
    COMPREPLY=()
    while IFS=, read -r kind value; do
        case $kind in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done < <(COMP_LINE=$COMP_LINE COMP_POINT=$COMP_POINT CASTLOG_BREAKS=$COMP_WORDBREAKS \\
        %(complete_var)s=bash_complete "$1" 2>/dev/null)
    [[ ${#COMPREPLY[@]} == 1 && $COMPREPLY == */ ]] && compopt -o nospace
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class Bash(BashComplete):
    """Bash completion of words that hold `@`, `:` or `=`."""

    source_template = _SCRIPT
    _typed = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Split what stands left of the cursor by the shell's quoting alone."""
        line = os.fsencode(os.environ["COMP_LINE"])[: int(os.environ["COMP_POINT"])]
        text = line.decode("utf-8", "replace")
        words = split_arg_string(text)
        incomplete = "" if not words or text[-1:].isspace() else words.pop()
        option, equals, value = incomplete.partition("=")
        self._typed = value if equals and option.startswith("--") else incomplete
        return words[1:], incomplete

    def format_completion(self, item: CompletionItem[Any]) -> str:
        """Give the answer from bash's last word break on."""
        breaks = os.environ.get("CASTLOG_BREAKS", "")
        known = max((index + 1 for index, char in enumerate(self._typed) if char in breaks), default=0)
        return f"{item.type},{item.value[known:]}"


def register() -> None:
    """Let `bash` mean the class above."""
    add_completion_class(Bash)
