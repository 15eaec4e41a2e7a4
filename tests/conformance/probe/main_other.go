//go:build !linux || (!amd64 && !arm64)

// Command probe is the guest of the conformance suite, which needs Linux.
package main

import "os"

func main() {
	os.Stderr.WriteString("probe: needs Linux\n")
	os.Exit(99)
}
