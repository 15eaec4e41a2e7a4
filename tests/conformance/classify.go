//go:build linux

package main

import (
	"regexp"
	"strings"
)

var (
	processNumber = regexp.MustCompile(`\b(pid|process) \d+`)
	shellLine     = regexp.MustCompile(`^(\S+): \d+: `)
)

// classify turns what was written to standard error into one entry a line, without what says nothing about
// the launch.
func classify(text string) []string {
	var classes []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		line = processNumber.ReplaceAllString(line, "$1 N")
		line = shellLine.ReplaceAllString(line, "$1: ")
		if line != "" {
			classes = append(classes, line)
		}
	}
	return classes
}
