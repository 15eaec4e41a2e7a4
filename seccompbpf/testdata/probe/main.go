// Command probe makes syscalls by number and prints the error number of each.
//
//	probe [-unfiltered] CALL...
//
// A CALL is "NR" or "NR:ARG:...", with numbers as Go writes them and "@text" for a pointer to
// text. Those with the prefix "int80:" go through the x86 gate, from 64-bit code.
//
// The calls may be reboot and the like. Without -unfiltered, probe makes none of them before it has
// seen that a seccomp filter is in force.
package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

func main() {
	runtime.LockOSThread()
	calls := os.Args[1:]
	if len(calls) > 0 && calls[0] == "-unfiltered" {
		calls = calls[1:]
	} else if status, err := os.ReadFile("/proc/thread-self/status"); err != nil || !bytes.Contains(status, []byte("\nSeccomp:\t2\n")) {
		fmt.Fprintln(os.Stderr, "probe: no seccomp filter is in force")
		os.Exit(1)
	}
	for _, call := range calls {
		call, gate := strings.CutPrefix(call, "int80:")
		nr, args := parse(call)
		if gate {
			fmt.Println(-int32(int80(nr, args)))
			continue
		}
		_, _, errno := syscall.RawSyscall6(nr, args[0], args[1], args[2], args[3], args[4], args[5])
		fmt.Println(int(errno))
	}
}

var texts []*byte // keeps what the calls point to alive

func parse(call string) (nr uintptr, args [6]uintptr) {
	fields := strings.Split(call, ":")
	nr = number(fields[0])
	for i, f := range fields[1:] {
		if text, ok := strings.CutPrefix(f, "@"); ok {
			p, err := syscall.BytePtrFromString(text)
			if err != nil {
				panic(err)
			}
			texts = append(texts, p)
			args[i] = uintptr(unsafe.Pointer(p))
		} else {
			args[i] = number(f)
		}
	}
	return nr, args
}

func number(s string) uintptr {
	n, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		panic(err)
	}
	return uintptr(n)
}
