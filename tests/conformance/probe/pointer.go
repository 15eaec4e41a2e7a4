//go:build linux && (amd64 || arm64)

package main

import "unsafe"

// pointer is for system calls that x/sys does not wrap.
func pointer[T any](value *T) unsafe.Pointer { return unsafe.Pointer(value) }
