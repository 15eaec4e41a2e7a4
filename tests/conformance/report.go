//go:build linux

package main

import "github.com/populationgenomics/postern-go/tests/conformance/internal/wire"

// A Report is everything that came of one launch, with whatever is different on every launch (process and
// inode numbers, the name of the scratch directory) replaced by what it stands for. Two reports are equal if
// the launches were.
type Report struct {
	// Exit is the exit status of the launcher, "signal: …", or "hangs".
	Exit string
	// Stderr holds the class of every line, see [classify].
	Stderr []string
	// Stdout is what came before the probe's report or instead of it.
	Stdout string
	// Documents are what was written to the descriptors of kind out.
	Documents map[string]string
	// Blocked tells for each descriptor of kind block whether the command had not started before the byte.
	Blocked map[string]bool
	// Host is what changed in the scratch directory.
	Host map[string]string
	// Guest is nil if the probe never spoke.
	Guest *Guest
	// Outlived names the processes that were still there after the launcher's end.
	Outlived []string

	// StderrText is for people to read and not compared.
	StderrText string
}

// A Guest is the launched command, from inside and outside.
type Guest struct {
	Argv   []string
	Env    map[string]string
	Cwd    string
	Exe    string
	PID    string
	Parent string
	// The identities are those inside; for the maps see Process.
	UID, GID    [2]int
	Groups      []int
	Hostname    string
	Umask       string
	Nice        int
	Dumpable    int
	DeathSignal int
	Securebits  int
	Subreaper   int
	Blocked     []int
	Ignored     []int
	Rlimits     map[int][2]uint64
	FDs         map[int]string
	Files       map[string]wire.File
	Writable    map[string]string
	Network     map[string]string
	Loopback    string
	NewUserNS   string
	Terminal    string
	InitComm    string
	ProcSelf    bool
	Mounts      map[string]Mount
	// Process is the command seen from outside, Ancestors the launcher and the processes between them.
	Process   Process
	Ancestors map[string]Process
}

// A Process is what /proc tells about one from the host's side.
type Process struct {
	Comm           string
	PIDs           string
	UIDMap, GIDMap string
	Setgroups      string
	// IDs are the four user and group IDs on the host.
	UIDs, GIDs, Groups string
	Capabilities       map[string]string
	NoNewPrivs         string
	Seccomp            string
	Namespaces         map[string]string
	Session, Group     string
	OOMScoreAdj        string
	Cgroup             string
	Root               string
	SignalsBlocked     string
	SignalsIgnored     string
	FDs                map[string]string
}

// A Mount is one line of mountinfo.
type Mount struct {
	Parent       string
	Device       string
	Root         string
	Options      string
	Propagation  string
	FSType       string
	Source       string
	SuperOptions string
}
