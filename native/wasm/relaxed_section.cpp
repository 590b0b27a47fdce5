// The module of relaxed.cpp as a section of dbq.wasm that hosts read.
asm(".section .custom_section.dbq.relaxed,\"\",@\n.incbin \"" DBQ_RELAXED_MODULE "\"\n.text");
