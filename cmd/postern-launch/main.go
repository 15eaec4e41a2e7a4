//go:build linux

// The launcher is gone before its share of the CPUs changes.
//
//go:debug updatemaxprocs=0

package main

import (
	"os"
	"path/filepath"
)

func main() {
	growStack()
	if len(os.Args) > 1 && os.Args[1] == "--hardened" && filepath.Base(os.Args[0]) != "bwrap" {
		os.Exit(hardenedMain(os.Args[2:]))
	}
	os.Exit(bwrapMain(os.Args))
}

// growStack makes the stack as large at once as a launch needs it. Left to itself
// it would be copied to one of twice the size time and again, each time from
// deeper within calls: a twentieth of a launch. It needs a frame of that size,
// which a function in Go would fill with zeros.
func growStack()
