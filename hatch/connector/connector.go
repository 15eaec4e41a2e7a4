// Package connector is the program that a guest reaches a stream hatch with
// when all it has is standard input and output: git, ssh's ProxyCommand,
// rsync's -e. The guest finds it as $POSTERN_CONNECT and runs
//
//	$POSTERN_CONNECT $POSTERN_HATCH_REPO
//
// It connects to the Unix socket that is its only argument. Then it copies its
// standard input to the socket and the socket to its standard output, each at
// its own pace, and passes on the end of either. It exits 0 when the other side
// has closed the socket, or when both directions have ended; 1 with a line on
// standard error if it cannot connect or the connection breaks; 2 for wrong
// arguments.
//
// The program is an executable of a few KiB without a runtime, so it needs no
// file of the guest's root: no interpreter, no C library, no shell. It reads
// its argument in /proc/self/cmdline, so it does need /proc.
package connector

import "github.com/populationgenomics/postern-go/hatch"

const (
	// Path is where the guest has the connector.
	Path = hatch.GuestDir + "/connect"
	// EnvVar is the environment variable that tells it.
	EnvVar = "POSTERN_CONNECT"
)

// Wanted reports whether one of the hatches has guests that want the connector.
// Such a hatch has a method WantsConnector() bool that returns true.
func Wanted(hatches []hatch.Hatch) bool {
	for _, h := range hatches {
		if w, ok := h.(interface{ WantsConnector() bool }); ok && w.WantsConnector() {
			return true
		}
	}
	return false
}

// GitURL is the URL at which git in the guest reaches the hatch with this name.
// Git wants to be told that it may run the connector:
//
//	git -c protocol.ext.allow=always clone URL
//
// In a guest that permission gives away nothing: what asks for it is untrusted
// code that runs programs anyway.
func GitURL(name string) string { return "ext::" + Path + " " + hatch.GuestPath(name) }
