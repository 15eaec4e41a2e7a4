//go:build linux

package main

import "golang.org/x/sys/unix"

// A Case is one launch that every implementation is asked for.
type Case struct {
	// Name is a path: the group, a slash, what is tried.
	Name string
	// Line is the command line after the program's name, in the language of [parseLine].
	Line string
	// Parts are what the line was put together from, the command last, if it was generated.
	Parts []string
	// As restricts the case to one user; the zero value means both.
	As As
	// Before is a shell script that runs in the scratch directory beforehand.
	Before string
	// Under is a command that execs the launcher, to start it in a particular state.
	Under string
	// Dir is the working directory, by default the scratch directory.
	Dir string
	// Env is added to the environment.
	Env []string
	// Terminal makes standard input, output and error a terminal; the probe then speaks over descriptor 3.
	Terminal bool
	// Signal is sent to the launcher once the command runs.
	Signal unix.Signal
	// Exit is the exit status of the probe.
	Exit int
}

// As is who launches.
type As string

// The two users every case runs as.
const (
	Both     As = ""
	Root     As = "root"
	Ordinary As = "user"
)

// An ordinary user is this one: a number that no system database knows, unlike nobody's, which the kernel
// also uses for "not mapped".
const ordinaryID = 41234
