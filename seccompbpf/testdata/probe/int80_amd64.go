package main

// int80 makes a 32-bit x86 syscall from 64-bit code.
func int80(nr uintptr, args [6]uintptr) uintptr
