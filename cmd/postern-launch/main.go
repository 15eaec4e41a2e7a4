//go:build linux

package main

import (
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "--hardened" && filepath.Base(os.Args[0]) != "bwrap" {
		os.Exit(hardenedMain(os.Args[2:]))
	}
	os.Exit(bwrapMain(os.Args))
}
