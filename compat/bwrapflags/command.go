//go:build linux

package bwrapflags

import (
	"strings"

	"github.com/populationgenomics/postern-go/nsexec"
)

// Version is the version of bubblewrap whose command line this is.
const Version = "0.13.1"

// Facts are what a command line's meaning depends on besides its words.
type Facts struct {
	// Program is how the launcher was called, for its usage text.
	Program string
	// UID and GID are the caller's real IDs.
	UID, GID uint32
	// Caps are the capabilities that are in effect for the caller.
	Caps nsexec.CapSet
	// LastCap is the number of the last capability the kernel has.
	LastCap int
	// Dir is the working directory, or empty if it has no path any more.
	Dir string
	// Terminal is the path of the terminal standard output is connected to,
	// or empty.
	Terminal string
	// ProcWritable returns the entries of /proc among ProcMasks that the caller
	// could write to, or files below them. Only those are covered: one that is
	// covered keeps a sandbox inside the sandbox from mounting a /proc.
	ProcWritable func() []string
	// UserNamespaces and CgroupNamespaces say whether the kernel has them
	// enabled, for the options that only try.
	UserNamespaces, CgroupNamespaces func() bool
}

// ProcMasks are the entries of /proc that a sandbox must not write to.
func ProcMasks() []string { return []string{"sys", "sysrq-trigger", "irq", "bus"} }

// FDs are the descriptors the launcher was started with.
type FDs interface {
	// ReadAll returns what is left to read of a descriptor and closes it.
	ReadAll(fd int) ([]byte, error)
}

// An Action is what a command line asks for.
type Action int

const (
	Run     Action = iota
	Help           // print the usage text and succeed
	Kernel         // print the version of the kernel this relies on and succeed
	Explain        // print the launch instead of running it
	ShowVersion
)

// A Command is a command line, understood.
type Command struct {
	Action Action
	// Spec is the launch. Its namespaces to join are not filled in: they are
	// the descriptors below.
	Spec nsexec.Spec

	// UserNS and PIDNS are descriptors of namespaces to enter, InfoFD
	// and StatusFD take documents about the sandbox, and UserNSBlockFD is read
	// until the ID maps have been written by somebody else. nil means none.
	UserNS, PIDNS                   *int
	InfoFD, StatusFD, UserNSBlockFD *int

	// LevelPrefix starts messages with <3> for errors and <4> for warnings.
	LevelPrefix bool
	// Warnings are to be printed before anything happens.
	Warnings []Message

	// RemoveMountpoints removes mount points the launch had to create.
	RemoveMountpoints bool

	sources, dests map[string]string // path in Spec -> the words of the command line
}

// Source returns the source of a mount in the Spec as the command line has it.
func (c *Command) Source(path string) string { return written(c.sources, path) }

// Dest does the same with a destination.
func (c *Command) Dest(path string) string { return written(c.dests, path) }

func written(words map[string]string, path string) string {
	if w, ok := words[path]; ok {
		return w
	}
	return path
}

// Rename says that a source replaces another in the Spec.
func (c *Command) Rename(to, from string) { c.sources[to] = c.Source(from) }

// A Message is something to tell the user, who may also be a program that
// looks for the text.
type Message struct {
	Text   string
	Prefix string
}

func (m Message) String() string { return m.Prefix + m.Text }

// Prefix returns what starts a message of a launcher in bwrap's stead.
func Prefix(levels bool, level string) string {
	if levels {
		return "<" + level + ">bwrap: "
	}
	return "bwrap: "
}

// Levels of a message, as in syslog.
const (
	LevelError   = "3"
	LevelWarning = "4"
)

// An Error is a command line that cannot be launched, in bubblewrap's words.
type Error struct {
	Message
	// Usage says that the usage text is the message.
	Usage bool
}

func (e *Error) Error() string { return e.String() }

// absolute makes a path of the guest absolute; bubblewrap takes every one as
// relative to the new root.
func absolute(path string) string {
	if strings.HasPrefix(path, "/") {
		return path
	}
	return "/" + path
}
