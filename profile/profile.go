package profile

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/populationgenomics/postern-go/seccompbpf"
)

// Where a guest finds what its host gives it.
const (
	GuestWorkspace = "/workspace"         // its working directory
	GuestStubs     = "/run/postern/stubs" // first on PYTHONPATH
)

// Unlimited says explicitly that a limit, size or timeout of a [Profile] is
// not wanted. Zero is always the default.
const Unlimited = -1

// The defaults of a Profile.
const (
	DefaultTimeout     = 60 * time.Second
	DefaultOutputLimit = 64 << 20 // bytes
	DefaultProcesses   = 1024
	DefaultTmpSize     = 1 << 30   // bytes
	DefaultShmSize     = 256 << 20 // bytes
	DefaultPython      = "python3"
	DefaultPath        = "/usr/local/bin:/usr/bin:/bin"
)

// A Profile describes a wall and what is behind it. It is a value without side
// effects; the zero value is the secure baseline. Fields that make the wall
// weaker say so.
type Profile struct {
	// Workspace is the host directory that the guest has, writable, at
	// [GuestWorkspace]. A sandbox makes it if it is missing, and it stays.
	// Empty gives every sandbox a private temporary directory, which its Close
	// removes.
	//
	// A guest that is not root gets it with mode 1777, if the host may change
	// that, so that it can write whatever its user is in the kernel: see
	// [Profile.ShareWorkspace].
	Workspace string
	// WorkspaceSize, if not zero, puts the workspace in memory instead, with
	// room for so many bytes. It is then empty at the start of each run and
	// gone at its end, and the host cannot look into it.
	WorkspaceSize int64

	// Rootfs is a host directory whose usr, lib, lib64, bin, sbin and
	// etc/ld.so.cache the guest has, read-only, instead of the host's own.
	// Only usr must exist.
	Rootfs string
	// Overlay makes the guest's whole root from layers, instead of Rootfs.
	Overlay *Overlay

	// ReadOnlyBinds are further files and directories of the host, with
	// everything mounted below them. One that does not exist is skipped.
	// Debian's awk, vi and others are found by way of /etc/alternatives, which
	// a guest does not have unless it is bound.
	ReadOnlyBinds []Bind
	// RequiredBinds are the same, but one that does not exist fails the launch.
	RequiredBinds []Bind
	// WritableBinds are required too, and the guest can write to them as far
	// as its kernel user may. Each is a weaker wall.
	WritableBinds []Bind

	// StubDir is a host directory, or StubFiles are host files, that the
	// guest has at [GuestStubs]. Python finds them before anything else.
	StubDir   string
	StubFiles []string
	// Etc, if not nil, makes an /etc of a few files that programs expect.
	// Without it /etc holds nothing but ld.so.cache.
	Etc *Etc
	// TmpSize and ShmSize are the room in /tmp and in /dev/shm in bytes.
	TmpSize, ShmSize int64

	// Python is the interpreter of the code in a [Command], [DefaultPython] if
	// empty. A name without a slash is looked up along the PATH in Env.
	Python string
	// Env has further environment variables, "NAME=value". The guest gets
	// these, PATH if they lack it, PWD, and what tells it where its hatches
	// are. Nothing comes from the environment of the host.
	Env []string

	// GuestUID and GuestGID are the user and group the guest sees itself as.
	// They are [Nobody], not root, if not set.
	GuestUID, GuestGID GuestID
	// HostUID is the user of the host that the whole launch runs as, if the
	// host program is root. Nil is the host program's own user, so that the
	// kernel takes a root program's guest for root wherever namespaces are not
	// looked at. Every source of a bind, the workspace, the rootfs and the
	// sockets of hatches must be reachable for HostUID. It is ignored if the
	// host program is not root.
	HostUID *uint32
	// HostGID goes with HostUID. Nil is GuestGID's number, or the host
	// program's own group if GuestGID is [CallerID].
	HostGID *uint32

	// Seccomp says which system calls the guest may make. Nil is
	// [seccompbpf.Hardened].
	Seccomp *seccompbpf.Policy
	// NoSeccomp switches the filter off: a much weaker wall, which the Verify
	// of a sandbox does not accept.
	NoSeccomp bool
	Limits    Limits
	// Network is the network the guest has; the zero value is none.
	Network Network

	// Timeout ends a run of a sandbox's Run and its kin: [DefaultTimeout] if
	// zero. Processes of Start have none.
	Timeout time.Duration
	// OutputLimit is how many bytes of standard output and standard error,
	// together, are collected in the result of a run: [DefaultOutputLimit] if
	// zero. A guest that writes more is killed. Output that Output of the
	// process has delivered does not count.
	OutputLimit int64
}

// A Bind makes a file or directory of the host appear in the guest, nosuid and
// nodev.
type Bind struct {
	Host string // absolute; symbolic links are followed
	// Guest is where it appears, absolute; empty means where it is on the
	// host. Missing directories are made.
	Guest string
}

func (b Bind) dest() string {
	if b.Guest == "" {
		return b.Host
	}
	return b.Guest
}

// An Overlay is a root made of layers, such as those of a container image.
// The guest sees all of them, and can write everywhere as far as the
// permissions in them let it.
//
// A guest without root in the kernel sees files of other users as nobody's and
// cannot change them.
type Overlay struct {
	// Lower are host directories, the lowest first. They are never written.
	Lower []string
	// Upper is a host directory that keeps what the guest writes, for later
	// runs to find; it may be in the workspace. Only one run can use it at a
	// time. Empty means in memory, for one run.
	Upper string
	// Size is the room in memory in bytes, [DefaultTmpSize] if zero.
	Size int64
}

// An Etc is a synthetic /etc: passwd, group, nsswitch.conf, hosts. Nothing in
// it comes from the host's but the host's name. It also sets HOME.
type Etc struct {
	// User is the guest's name, "guest" if empty.
	User string
	// Home is the guest's home directory and HOME, [GuestWorkspace] if empty.
	Home string
	// TimeZone is what /etc/localtime links to below /usr/share/zoneinfo,
	// such as "Europe/Berlin". Empty means there is none: UTC.
	TimeZone string
}

// Limits are resource limits, each for every process of a guest on its own but
// Processes. The guest cannot raise them. Zero is what the host program itself
// has, unless something else is said.
type Limits struct {
	// Processes is how many processes and threads the guest may have at a
	// time: [DefaultProcesses] if zero. The kernel does not hold guests to
	// it whose user there is root: set HostUID if the host program is root.
	Processes int64
	// AddressSpace is in bytes. It is applied to [Command.Python] when the
	// interpreter is up, whose start can reserve more than it ever uses.
	AddressSpace int64
	OpenFiles    int64
	FileSize     int64 // of a file being written, in bytes
	Stack        int64 // in bytes
	// CPU is CPU time, in whole seconds.
	CPU time.Duration
}

// A Network is an existing network namespace for the guest to join. The zero
// value gives it an empty one: it can use its own loopback interface and
// reaches nothing.
//
// Joining takes a host program with CAP_SYS_ADMIN over the namespace. The
// guest can reach what can be reached there: a weaker wall.
type Network struct {
	Name string   // as in "ip netns add NAME"
	File *os.File // refers to the namespace, like an open /proc/PID/ns/net
}

// A GuestID is a user or group ID inside the guest. The zero value is
// [Nobody].
type GuestID struct {
	set    bool
	caller bool
	id     uint32
}

// Nobody is the ID 65534.
var Nobody = GuestID{}

// CallerID is the host program's own ID, or HostUID or HostGID. A guest of root
// sees itself as root, though without any of root's capabilities.
var CallerID = GuestID{set: true, caller: true}

// NumericID returns the GuestID with this number.
func NumericID(id uint32) GuestID { return GuestID{set: true, id: id} }

const nobody = 65534

// number returns the ID, or nil for CallerID.
func (g GuestID) number() *uint32 {
	switch {
	case g.caller:
		return nil
	case g.set:
		return &g.id
	}
	return new(uint32(nobody))
}

func (g GuestID) String() string {
	if n := g.number(); n != nil {
		return fmt.Sprint(*n)
	}
	return "the caller's"
}

// OrDefault returns what a limit, size or timeout of a profile comes to: def
// if it is zero, and zero, which stands for none, if it is [Unlimited].
func OrDefault[T ~int64](n, def T) T {
	switch {
	case n == 0:
		return def
	case n < 0:
		return 0
	}
	return n
}

// ShareWorkspace makes a directory, the workspace, one that the guest can write
// to whatever its user is in the kernel: it sets mode 1777, if the guest is
// neither root nor the caller. The directory may be one whose mode is not
// ours to change; a guest whose user it belongs to can use it all the same.
func (p Profile) ShareWorkspace(dir string) error {
	if id := p.GuestUID.number(); id == nil || *id == 0 {
		return nil
	}
	const shared = fs.ModeSticky | 0o777
	if st, err := os.Stat(dir); err == nil && st.Mode()&(fs.ModePerm|fs.ModeSticky) == shared {
		return nil
	}
	return os.Chmod(dir, shared)
}

// Clone returns a copy that shares nothing with the profile that its owner
// could still change.
func (p Profile) Clone() Profile {
	p.ReadOnlyBinds = slices.Clone(p.ReadOnlyBinds)
	p.RequiredBinds = slices.Clone(p.RequiredBinds)
	p.WritableBinds = slices.Clone(p.WritableBinds)
	p.StubFiles = slices.Clone(p.StubFiles)
	p.Env = slices.Clone(p.Env)
	if p.Overlay != nil {
		p.Overlay = new(*p.Overlay)
		p.Overlay.Lower = slices.Clone(p.Overlay.Lower)
	}
	if p.Etc != nil {
		p.Etc = new(*p.Etc)
	}
	if p.HostUID != nil {
		p.HostUID = new(*p.HostUID)
	}
	if p.HostGID != nil {
		p.HostGID = new(*p.HostGID)
	}
	if p.Seccomp != nil {
		p.Seccomp = new(p.Seccomp.With())
	}
	return p
}
