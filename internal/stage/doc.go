// Package stage is the machine that launches a guest: a few hundred bytes of
// machine code that walk a flat list of system calls.
//
// A launch is compiled in ordinary Go to a [Program]. [Program.Image] links it
// into an ELF file next to a copy of the machine's code, and executing that
// file runs the program. No Go runtime exists in the process that runs it, so
// it may unshare namespaces, share memory with its children and become PID 1,
// and it costs a handful of pages.
//
// The machine is deliberately dumb. Everything that decides anything is in the
// Go that writes the program, where it can be read, printed and compared.
//
// # Rules a program must obey
//
//   - The machine has no stack and keeps its state in registers, so a child
//     made by [Builder.Fork] may share its parent's memory (CLONE_VM). Parent
//     and child must then write different slots, except under CLONE_VFORK,
//     where only one of them runs.
//   - Slot 0 takes results nobody reads. Slots 1 and 2 hold the address of the
//     last failed operation and its negative errno.
package stage
