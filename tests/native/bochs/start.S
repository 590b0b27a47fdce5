// The first instructions of the emulated machine: from reset to 64 bits, then main() in system.c.
//
// There is no BIOS: this is the ROM, the last 64 KiB below 4 GiB. It copies itself to LOADED, for which it is
// linked. All memory is mapped to itself, everything runs in ring 0, and interrupts stay off.
#define ROM 0xffff0000
#define LOADED 0x100000
#define TABLES 0x1000   // of pages
#define STACK 0x200000  // grows downwards; the program has another one

    .section .reset, "ax"
    .code16
sixteen_bits:
    lgdtl %cs:pointer_in_rom - sixteen_bits + 0xff80
    mov $1, %eax
    mov %eax, %cr0
    ljmpl $0x18, $ROM + thirty_two_bits - LOADED
pointer_in_rom:
    .word 4 * 8 - 1
    .long ROM + descriptors - LOADED
    .org 0x70               // the processor starts 16 bytes before the end
    jmp sixteen_bits
    .org 0x80

    .section .start, "ax"
    .code32
thirty_two_bits:
    mov $0x10, %eax
    mov %eax, %ds
    mov %eax, %es
    mov %eax, %ss
    mov $ROM, %esi
    mov $LOADED, %edi
    mov $0x10000 / 4, %ecx
    rep movsl
    mov $loaded, %eax
    jmp *%eax

loaded:
    lgdt pointer
    movl $TABLES + 0x1003, TABLES
    movl $TABLES + 0x2003, TABLES + 0x1000
    mov $0x83, %eax         // the first of 512 pages of 2 MiB
    mov $TABLES + 0x2000, %edi
1:  mov %eax, (%edi)
    add $0x200000, %eax
    add $8, %edi
    cmp $TABLES + 0x3000, %edi
    jb 1b
    mov $0x620, %eax        // long addresses, SSE
    mov %eax, %cr4
    mov $TABLES, %eax
    mov %eax, %cr3
    mov $0xc0000080, %ecx   // EFER: long mode, syscall
    mov $0x101, %eax
    xor %edx, %edx
    wrmsr
    mov $0x80000023, %eax   // pages, exceptions of the FPU, protection
    mov %eax, %cr0
    ljmp $0x08, $sixty_four_bits

    .code64
sixty_four_bits:
    mov $STACK, %rsp
    fninit
    mov $1, %eax
    cpuid
    bt $26, %ecx            // is there XSAVE?
    jnc 2f
    mov %cr4, %rax
    or $0x40000, %rax
    mov %rax, %cr4
    mov $0x0d, %eax
    xor %ecx, %ecx
    cpuid
    and $0xe7, %eax         // what there is of SSE, AVX and AVX-512
    xor %ecx, %ecx
    xor %edx, %edx
    xsetbv
2:  mov $0xc0000081, %ecx   // STAR: a system call stays in this ring
    xor %eax, %eax
    mov $0x08, %edx
    wrmsr
    mov $0xc0000082, %ecx   // LSTAR
    mov $on_system_call, %eax
    xor %edx, %edx
    wrmsr
    mov $interrupts, %edi
    mov $on_exceptions, %eax
3:  mov %ax, (%rdi)
    movl $0x08, 2(%rdi)
    movw $0x8e00, 4(%rdi)
    movl %eax, 6(%rdi)      // the upper half of the address, and into the next 16 bits
    shrl $16, 6(%rdi)
    add $16, %rdi
    add $16, %eax
    cmp $on_exceptions + 32 * 16, %eax
    jb 3b
    lidt pointer_to_interrupts
    call main

// Linux keeps all registers but rax, rcx and r11, and writes nothing below rsp.
on_system_call:
    mov %rsp, rsp_of_program
    mov $STACK, %rsp
    push %rcx
    push %rdx
    push %r9
    push %r8
    push %r10
    push %rdx
    push %rsi
    push %rdi
    mov %rax, %rdi
    mov %rsp, %rsi
    call system_call
    pop %rdi
    pop %rsi
    pop %rdx
    pop %r10
    pop %r8
    pop %r9
    pop %rdx
    pop %rcx
    mov rsp_of_program, %rsp
    jmp *%rcx

    .balign 16
on_exceptions:
    vector = 0
    .rept 32
    .balign 16
    .if !((0x60227d00 >> vector) & 1)  // of the others, the processor pushes a code
    push $0
    .endif
    push $vector
    jmp on_exception
    vector = vector + 1
    .endr
on_exception:
    mov %rsp, %rdi
    mov $STACK, %rsp
    call exception

    .globl start_program
start_program:              // (entry, rsp)
    mov %rsi, %rsp
    xor %edx, %edx          // no function to be called at exit
    jmp *%rdi

    .balign 8
descriptors:                // none, code of 64 bits, data, code of 32 bits
    .quad 0, 0x00af9b000000ffff, 0x00cf93000000ffff, 0x00cf9b000000ffff
pointer:
    .word 4 * 8 - 1
    .quad descriptors
pointer_to_interrupts:
    .word 32 * 16 - 1
    .quad interrupts

    .bss
    .balign 16
interrupts:
    .skip 32 * 16
rsp_of_program:
    .skip 8

    .section .note.GNU-stack, "", @progbits
