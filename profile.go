package postern

import "github.com/populationgenomics/postern-go/profile"

// What a sandbox is made of and what runs in it are values of package profile,
// which says what each of their fields promises. They are here under this
// package's name, as those who have a [Sandbox] need no more of that package.
type (
	// A Profile describes a wall and what is behind it. Its zero value is the
	// secure baseline.
	Profile = profile.Profile
	// A Bind makes a file or directory of the host appear in the guest.
	Bind = profile.Bind
	// An Overlay is a root made of layers, such as those of a container image.
	Overlay = profile.Overlay
	// An Etc is a synthetic /etc of a few files that programs expect.
	Etc = profile.Etc
	// Limits are resource limits.
	Limits = profile.Limits
	// A Network is an existing network namespace for the guest to join.
	Network = profile.Network
	// A GuestID is a user or group ID inside the guest: [Nobody], [CallerID]
	// or a [NumericID].
	GuestID = profile.GuestID

	// A Command is what to run, for [Sandbox.RunCommand] and
	// [Sandbox.StartCommand]. Most callers need only Run, RunBash and
	// RunPython.
	Command = profile.Command
	// A WindowSize is the size of a terminal in characters.
	WindowSize = profile.WindowSize

	// A FieldError is a field of a [Profile] or a [Command] with a value that
	// no run could have.
	FieldError = profile.FieldError
)

// Where a guest finds what its host gives it.
const (
	GuestWorkspace = profile.GuestWorkspace // its working directory
	GuestStubs     = profile.GuestStubs     // first on PYTHONPATH
)

// Unlimited says explicitly that a limit, size or timeout of a [Profile] is
// not wanted. Zero is always the default.
const Unlimited = profile.Unlimited

// The defaults of a Profile.
const (
	DefaultTimeout     = profile.DefaultTimeout
	DefaultOutputLimit = profile.DefaultOutputLimit // bytes
	DefaultProcesses   = profile.DefaultProcesses
	DefaultTmpSize     = profile.DefaultTmpSize // bytes
	DefaultShmSize     = profile.DefaultShmSize // bytes
	DefaultPython      = profile.DefaultPython
	DefaultPath        = profile.DefaultPath
)

var (
	// Nobody is the ID 65534, and the zero value.
	Nobody = profile.Nobody
	// CallerID is the host program's own ID, or HostUID or HostGID.
	CallerID = profile.CallerID
)

// NumericID returns the GuestID with this number.
func NumericID(id uint32) GuestID { return profile.NumericID(id) }

// Bash is the command that runs a script with bash -c.
func Bash(script string) Command { return profile.Bash(script) }

// Python is the command that runs code in Profile.Python, with args as
// sys.argv[1:].
func Python(code string, args ...string) Command { return profile.Python(code, args...) }
