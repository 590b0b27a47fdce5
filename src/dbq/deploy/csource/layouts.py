"""The same two C files as a library of an environment: Arduino, Zephyr, a CMSIS pack."""

from __future__ import annotations

from collections.abc import Callable

from dbq.deploy.csource.source import Source
from dbq.errors import LoweringError, closest
from dbq.version import __version__

Texts = dict[str, str]  # by path


def arranged(source: Source, layout: str) -> Texts:
    """Every file of a layout, by its path. The C files are those of `to_c`."""
    if layout not in LAYOUTS:
        raise LoweringError(f"no layout {layout!r}; {closest(layout, LAYOUTS)}")
    return LAYOUTS[layout](source)


def _arduino(source: Source) -> Texts:
    name = source.name
    sketch = f"""\
#include <{name}.h>

static float out[{name.upper()}_OUTPUTS];

void setup() {{
  Serial.begin(115200);
}}

void loop() {{
  // Fill {name}_image() with the bytes of an image first.
  Serial.println({name}_run({name}_image(), out));
}}
"""
    properties = f"""\
name={name}
version={__version__}
author=dbq
maintainer=dbq
sentence=A neural network as C source.
paragraph=Written by dbq. No library, no allocation; weights stay in flash.
category=Data Processing
url=
architectures=*
includes={name}.h
"""
    return {
        "library.properties": properties,
        f"src/{name}.c": source.code,
        f"src/{name}.h": source.header,
        f"examples/{name}_run/{name}_run.ino": sketch,
    }


def _zephyr(source: Source) -> Texts:
    name = source.name
    option = f"DBQ_{name.upper()}"
    return {
        "zephyr/module.yml": f"name: {name}\nbuild:\n  cmake: zephyr\n  kconfig: zephyr/Kconfig\n",
        "zephyr/CMakeLists.txt": f"""\
if(CONFIG_{option})
  zephyr_library_named({name})
  zephyr_library_sources(../src/{name}.c)
  zephyr_library_compile_options(-O2)
  zephyr_include_directories(../src)
endif()
""",
        "zephyr/Kconfig": f"""\
config {option}
\tbool "The network {name}, written by dbq"
\thelp
\t  A neural network as C source: about {source.memory.bytes} bytes of static RAM.
""",
        f"src/{name}.c": source.code,
        f"src/{name}.h": source.header,
    }


def _cmsis(source: Source) -> Texts:
    name = source.name
    pack = f"""\
<?xml version="1.0" encoding="UTF-8"?>
<package schemaVersion="1.7.7" xmlns:xs="http://www.w3.org/2001/XMLSchema-instance"
    xs:noNamespaceSchemaLocation="PACK.xsd">
  <vendor>dbq</vendor>
  <name>{name}</name>
  <description>A neural network as C source, written by dbq</description>
  <url></url>
  <releases>
    <release version="{__version__}">First release</release>
  </releases>
  <conditions>
    <condition id="Cortex-M">
      <accept Dcore="Cortex-M*"/>
    </condition>
  </conditions>
  <components>
    <component Cclass="Machine Learning" Cgroup="{name}" Cversion="{__version__}" condition="Cortex-M">
      <description>{name}_run: pixels in, floats out</description>
      <files>
        <file category="header" name="src/{name}.h"/>
        <file category="source" name="src/{name}.c"/>
      </files>
    </component>
  </components>
</package>
"""
    return {
        f"dbq.{name}.pdsc": pack,
        f"src/{name}.c": source.code,
        f"src/{name}.h": source.header,
    }


LAYOUTS: dict[str, Callable[[Source], Texts]] = {
    "arduino": _arduino, "zephyr": _zephyr, "cmsis-pack": _cmsis,
}  # fmt: skip
