//go:build linux

//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
//go:debug decoratemappings=0
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
