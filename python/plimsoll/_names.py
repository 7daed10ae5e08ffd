"""Errors of the operators, with the names that a drop-in module gives to its arguments."""
import contextlib


@contextlib.contextmanager
def named(names):
    """`names`: the operators' name of an argument, and the caller's. The first that fits counts."""
    try:
        yield
    except (TypeError, ValueError) as e:
        text = str(e)
        if text.startswith("attention_"):
            text = text.partition(": ")[2]
        for theirs, ours in names.items():
            after = text[len(theirs):len(theirs) + 1]
            if text.startswith(theirs) and not (after.isalnum() or after == "_"):
                text = ours + text[len(theirs):]
                break
        raise type(e)(text) from None
