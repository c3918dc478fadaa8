"""Dataclasses that cost next to nothing until the first object of the class is made.

`dataclasses.dataclass` writes source text for up to six methods of every class and has it compiled, some 0.3 ms a
class; a command imports a hundred classes and uses a third of them. Here `__init__` is compiled when it is first
called, since it has to be fast, and the other methods look at the fields. Classes are the same as those of the standard
decorator with the same options, and to a type checker it is that decorator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    import dataclasses
    from dataclasses import MISSING, FrozenInstanceError
    from reprlib import recursive_repr

    def dataclass(cls=None, /, *, frozen=False, eq=True, kw_only=False):
        """Make a dataclass, as `dataclasses.dataclass` does with the same options."""

        def make(cls):
            dataclasses.dataclass(cls, init=False, repr=False, eq=False, kw_only=kw_only)
            methods = {"__init__": _first_init(cls), "__repr__": _repr}
            if eq:
                methods |= {"__eq__": _eq, "__hash__": _hash if frozen else None}
            if frozen:
                methods |= {"__setattr__": _frozen_setattr(cls), "__delattr__": _frozen_delattr(cls)}
            own = cls.__dict__
            # A class with an __eq__ of its own has a __hash__ of None that nobody wrote.
            unhashed = "__eq__" in own and own.get("__hash__") is None
            for name, method in methods.items():
                if name not in own or (name == "__hash__" and unhashed):
                    setattr(cls, name, method)
            return cls

        return make if cls is None else make(cls)

    def _first_init(cls):
        def __init__(self, *values, **named):  # noqa: N807
            cls.__init__ = _compiled_init(cls)
            cls.__init__(self, *values, **named)

        return __init__

    def _compiled_init(cls):
        """Compile the `__init__` that sets the fields."""
        names = {"set_": object.__setattr__, "MISSING": MISSING}
        places, keywords, lines = [], [], []
        for item in dataclasses.fields(cls):
            key, value, default = item.name, item.name, ""
            if item.default is not MISSING:
                names[f"default_{key}"], default = item.default, f"=default_{key}"
            elif item.default_factory is not MISSING:
                names[f"make_{key}"], default = item.default_factory, "=MISSING"
                value = f"make_{key}() if {key} is MISSING else {key}" if item.init else f"make_{key}()"
            if item.init:
                (keywords if item.kw_only else places).append(key + default)
            if item.init or item.default_factory is not MISSING:
                lines.append(f"set_(self, {key!r}, {value})")
        if hasattr(cls, "__post_init__"):
            lines.append("self.__post_init__()")
        parameters = ", ".join(["self", *places, *(["*", *keywords] if keywords else [])])
        exec(f"def __init__({parameters}):\n " + "\n ".join(lines or ["pass"]), names)
        init = names["__init__"]
        init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
        return init

    @recursive_repr()
    def _repr(self):
        shown = (f"{item.name}={getattr(self, item.name)!r}" for item in dataclasses.fields(self) if item.repr)
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def _values(self, wanted):
        return tuple(getattr(self, item.name) for item in dataclasses.fields(self) if wanted(item))

    def _eq(self, other):
        if type(other) is not type(self):
            return NotImplemented
        return _values(self, _is_compared) == _values(other, _is_compared)

    def _hash(self):
        return hash(_values(self, _is_hashed))

    def _is_compared(item):
        return item.compare

    def _is_hashed(item):
        return item.compare if item.hash is None else item.hash

    def _frozen_setattr(cls):
        def __setattr__(self, name, value):  # noqa: N807
            if type(self) is cls or name in cls.__dataclass_fields__:
                raise FrozenInstanceError(f"cannot assign to field {name!r}")
            super(cls, self).__setattr__(name, value)

        return __setattr__

    def _frozen_delattr(cls):
        def __delattr__(self, name):  # noqa: N807
            if type(self) is cls or name in cls.__dataclass_fields__:
                raise FrozenInstanceError(f"cannot delete field {name!r}")
            super(cls, self).__delattr__(name)

        return __delattr__
