//go:build linux

package nsexec

import (
	"os"

	"golang.org/x/sys/unix"
)

// A Namespace says which namespace of one type the guest lives in: the
// caller's, a new one, or an existing one.
type Namespace struct {
	fresh bool
	join  bool
	file  *os.File
}

// Share is the caller's namespace, the zero value.
var Share = Namespace{}

// New is a namespace of the guest's own. A launch that cannot have it fails.
var New = Namespace{fresh: true}

// Join is the existing namespace that f refers to, for instance
// /proc/PID/ns/net or what package vishvananda/netns returns for a name.
func Join(f *os.File) Namespace { return Namespace{join: true, file: f} }

// IsNew reports whether n is New.
func (n Namespace) IsNew() bool { return n.fresh }

// Namespaces has one field for every type of namespace.
type Namespaces struct {
	User, Mount, PID, Net, IPC, UTS, Cgroup Namespace
}

// AllNew returns a new namespace of every type.
func AllNew() Namespaces { return Namespaces{New, New, New, New, New, New, New} }

type nsType struct {
	name string
	flag int
	ns   Namespace
}

// types lists the namespaces in the order to join them: the user namespace
// gives the rights to the others.
func (n Namespaces) types() []nsType {
	return []nsType{
		{"user", unix.CLONE_NEWUSER, n.User}, {"mount", unix.CLONE_NEWNS, n.Mount}, {"pid", unix.CLONE_NEWPID, n.PID},
		{"net", unix.CLONE_NEWNET, n.Net}, {"ipc", unix.CLONE_NEWIPC, n.IPC}, {"uts", unix.CLONE_NEWUTS, n.UTS},
		{"cgroup", unix.CLONE_NEWCGROUP, n.Cgroup},
	}
}

func (n Namespaces) newFlags() int {
	var f int
	for _, t := range n.types() {
		if t.ns.fresh {
			f |= t.flag
		}
	}
	return f
}
