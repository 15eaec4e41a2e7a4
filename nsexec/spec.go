//go:build linux

package nsexec

import (
	"os"

	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/pidone"
	"github.com/populationgenomics/postern-go/seccompbpf"
	"golang.org/x/sys/unix"
)

// A Spec describes one launch. It is a value and may be reused; a launch does
// not change it.
type Spec struct {
	// Path is the program, looked up inside the guest along the PATH in Env
	// if it contains no slash. Args is its argv, beginning with argv[0].
	// Env is its whole environment.
	Path string
	Args []string
	Env  []string
	// Dir is its working directory inside the guest. Empty means / in a guest
	// with Mounts, and the caller's otherwise. DirFallback lists directories
	// to use instead when Dir cannot be entered.
	Dir         string
	DirFallback []string
	// SetPWD puts the directory that was entered into the environment as PWD.
	SetPWD bool

	// Stdin, Stdout and Stderr become descriptors 0 to 2; nil is /dev/null.
	// A directory is refused: it would be a way out of the guest's root.
	// Files become descriptors 3 and up; directories are refused likewise.
	Stdin, Stdout, Stderr *os.File
	Files                 []*os.File
	// StageFiles are descriptors for the launch itself, for [mounts.Bind] to
	// name by [Spec.StageFD]. The guest does not get them.
	StageFiles []*os.File
	// KeepFDs passes on every descriptor of the caller that is not
	// close-on-exec. Without it the guest gets only what is listed here.
	KeepFDs bool

	Namespaces Namespaces
	// Mounts builds the guest's file system, in a new mount namespace. nil
	// leaves the file system as it is.
	Mounts *mounts.Tree
	// Hostname is set in a new UTS namespace; nil keeps the caller's.
	Hostname *string

	// UID and GID are the guest's IDs in its user namespace. nil keeps the
	// caller's. With a new user namespace and no ranges the guest's ID is the
	// only one there is.
	UID, GID *uint32
	// UIDMap and GIDMap map ranges of IDs into a new user namespace. The
	// caller writes them if it is privileged and newuidmap and newgidmap
	// otherwise.
	UIDMap, GIDMap []IDMap
	// HostUser runs the whole launch as another user of the host, which only
	// root may ask for: every source of a bind must be reachable by it.
	HostUser *HostUser
	// KeepGroups keeps the caller's supplementary groups. Without it they are
	// dropped where the caller is allowed to.
	KeepGroups bool

	// Caps are the capabilities the guest keeps; the zero value keeps none,
	// in any of the five sets. (Without a new user namespace a caller that is
	// not privileged cannot empty the bounding set, and no_new_privs makes it
	// inert.) AllCaps with KeepCaps leaves them untouched, and KeepCaps
	// with another set takes the rest from the bounding set only.
	Caps     CapSet
	KeepCaps bool
	// AllowNewPrivs lets set-user-ID programs and file capabilities take
	// effect. It cannot be combined with Seccomp.
	AllowNewPrivs bool
	// Seccomp filters are installed in order just before the program is
	// started, in the init too: a filter that keeps the init from starting the
	// program fails the launch.
	Seccomp []seccompbpf.Filter
	// DisableUserns keeps the guest from creating user namespaces. It needs a
	// new user namespace.
	DisableUserns bool
	// AssertUsernsDisabled only checks that it cannot, and fails otherwise.
	AssertUsernsDisabled bool

	// Init puts an init at PID 1, which runs the program as its child: see
	// package pidone. Without it the program is PID 1 itself. It needs a new
	// PID namespace.
	Init bool
	// NewSession starts a session without a controlling terminal.
	NewSession bool
	// Terminal gives the program a pseudo-terminal of the guest's own /dev/pts
	// as its controlling terminal and standard streams; [Process.Terminal] is
	// the other side. It needs Init and a [mounts.Dev] at /dev.
	Terminal bool
	// TerminalSize is the size of that terminal from the start.
	TerminalSize unix.Winsize
	// Limits are the program's resource limits. A limit above the caller's
	// own hard limit is lowered to that.
	Limits []pidone.Limit
	// Umask is the program's; nil keeps the caller's.
	Umask *uint32
	// SignalMask keeps the caller's blocked signals blocked in the program, all
	// but SIGCHLD, instead of none.
	SignalMask bool

	// Launcher has what only a launcher program asks for. A library leaves it
	// nil.
	Launcher *Launcher
}

// An IDMap maps Count IDs starting at Inside to those starting at Outside.
type IDMap struct{ Inside, Outside, Count uint32 }

// A HostUser is a user of the host.
type HostUser struct {
	UID uint32
	GID *uint32 // nil keeps the caller's group
}

// StageFD returns the number StageFiles[i] has in the launch.
func (s *Spec) StageFD(i int) int { return 3 + len(s.Files) + i }
