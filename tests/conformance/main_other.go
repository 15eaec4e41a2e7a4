//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "conformance: bwrap and its replacement need Linux")
	os.Exit(2)
}
