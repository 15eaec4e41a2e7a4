//go:build linux

package main

import (
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// What was handed down is found wherever it is, and what is close-on-exec was not.
func TestInherited(t *testing.T) {
	f, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	before := inherited().open
	for _, fd := range []int{25, 70} { // where all are low, and where one is not
		if err := unix.Dup3(int(f.Fd()), fd, 0); err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		if err := unix.Dup3(int(f.Fd()), fd+1, unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd + 1)
		before = append(before, fd)
		slices.Sort(before)
		if got := inherited(); !slices.Equal(got.open, before) || !slices.Equal(got.all, before) {
			t.Errorf("found %v and %v, want %v", got.open, got.all, before)
		}
	}
}
