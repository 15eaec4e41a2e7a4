//go:build linux

package mounts

import (
	"fmt"
	"io/fs"
	"strings"
)

// An Op is one step in building a guest's file system: one of the types of
// this package. Ops are values and print themselves.
type Op interface {
	fmt.Stringer
	emit(*emitter)
	validate() error
}

// A Mode says what a guest may do with a bound file or tree. Set-user-ID bits
// are inert in every mode.
type Mode uint8

const (
	ReadOnly  Mode = iota // the whole tree is read-only, submounts included; device nodes are inert
	ReadWrite             // writable as far as permissions go; device nodes are inert
	Device                // as ReadWrite, and device nodes work
)

func (m Mode) String() string { return [...]string{"ro", "rw", "dev"}[m] }

// A Bind makes a file or directory of the host, with everything mounted below
// it, appear at Dest.
type Bind struct {
	Source string // host path, absolute
	Dest   string
	Mode   Mode
	// Optional skips the operation when Source does not exist. Any other
	// failure to open it still fails the launch.
	Optional bool
	// FD, when not nil, is bound in place of Source: the number of an open
	// descriptor in the process that runs the program, which closes it.
	FD *int
	// FollowDest lets the last component of Dest be a symbolic link that
	// leads elsewhere inside the new root.
	FollowDest bool
}

func (o Bind) String() string {
	src := fmt.Sprintf("%q", o.Source)
	if o.FD != nil {
		src = fmt.Sprintf("descriptor %d", *o.FD)
	}
	var opt string
	if o.Optional {
		opt = ", if it exists"
	}
	return fmt.Sprintf("bind %s %s at %q%s", o.Mode, src, o.Dest, opt)
}

// A Tmpfs is an empty, writable file system in memory.
type Tmpfs struct {
	Dest string
	// Perm is the mode of its top directory; nil means 0755.
	Perm *fs.FileMode
	// Size limits its contents in bytes. Zero leaves the kernel's own limit,
	// half of the machine's memory.
	Size int64
	// Inodes limits the number of its files. Zero leaves the kernel's limit.
	Inodes int64
}

func (o Tmpfs) String() string {
	return fmt.Sprintf("tmpfs at %q %s", o.Dest, o.options())
}

func (o Tmpfs) options() string {
	s := fmt.Sprintf("mode=%#o", perm(o.Perm, 0o755))
	if o.Size > 0 {
		s += fmt.Sprintf(",size=%d", o.Size)
	}
	if o.Inodes > 0 {
		s += fmt.Sprintf(",nr_inodes=%d", o.Inodes)
	}
	return s
}

// Proc is the /proc of the guest's PID namespace.
type Proc struct {
	Dest string
	// Masks are paths below Dest to cover with a read-only view of
	// themselves; those the kernel does not have are skipped. The kernel lets
	// a guest whose kernel user is root write some of them whatever
	// capabilities it lacks, so this covers them for every user.
	Masks []string
	// Hidden are files below Dest to cover so that they cannot be opened;
	// those the kernel does not have are skipped.
	Hidden []string
	// Host binds the host's own /proc instead of mounting a new one, for
	// launches that share the host's PID namespace.
	Host bool
}

func (o Proc) String() string {
	if o.Host {
		return fmt.Sprintf("host's proc at %q, read-only below: %s", o.Dest, strings.Join(o.Masks, " "))
	}
	hidden := ""
	if len(o.Hidden) > 0 {
		hidden = ", hidden: " + strings.Join(o.Hidden, " ")
	}
	return fmt.Sprintf("proc at %q, read-only below: %s%s", o.Dest, strings.Join(o.Masks, " "), hidden)
}

// Dev is a minimal /dev: null, zero, full, random, urandom and tty of the
// host, the usual links, an own devpts instance, and an empty shm.
type Dev struct {
	Dest string
	// Console is the host path of a terminal to appear as console, or empty.
	Console string
	// Size limits what can be written to it, shm included, in bytes, and
	// Inodes the number of files; zero leaves the kernel's limit.
	Size, Inodes int64
	// FixedNodes keeps the guest from changing the mode or the times of the
	// host's device nodes, which root in the kernel could. It can use the
	// devices all the same.
	FixedNodes bool
}

func (o Dev) String() string { return fmt.Sprintf("dev at %q", o.Dest) }

// Mqueue is the POSIX message queue file system of the guest's IPC namespace.
type Mqueue struct{ Dest string }

func (o Mqueue) String() string { return fmt.Sprintf("mqueue at %q", o.Dest) }

// A Dir is a directory, created with its parents if missing and otherwise
// left as it is.
type Dir struct {
	Dest string
	Perm *fs.FileMode // nil means 0755; set-ID bits are dropped, as by mkdir(2)
}

func (o Dir) String() string { return fmt.Sprintf("dir %q mode %#o", o.Dest, perm(o.Perm, 0o755)) }

// A File is a regular file with these contents, written to whatever lies at
// Dest: below a writable bind it stays on the host.
type File struct {
	Dest string
	Data string
	Perm *fs.FileMode // nil means 0666
}

func (o File) String() string {
	return fmt.Sprintf("file %q mode %#o, %d bytes", o.Dest, perm(o.Perm, 0o666), len(o.Data))
}

// BindData is a file with these contents, mounted over Dest, so that nothing
// is written to what lies there and the guest cannot remove it.
type BindData struct {
	Dest string
	Data string
	Perm *fs.FileMode // nil means 0600
	Mode Mode         // ReadOnly or ReadWrite
}

func (o BindData) String() string {
	return fmt.Sprintf("data %s at %q mode %#o, %d bytes", o.Mode, o.Dest, perm(o.Perm, 0o600), len(o.Data))
}

// A Symlink is a symbolic link. One that exists already with the same target
// is left alone; anything else in its place fails the launch.
type Symlink struct{ Target, Dest string }

func (o Symlink) String() string { return fmt.Sprintf("symlink %q -> %q", o.Dest, o.Target) }

// Chmod changes the permissions of an existing file, which must not be a
// symbolic link. With a slash at its end Dest must be a directory, or a link to
// one inside the guest.
type Chmod struct {
	Dest string
	Perm fs.FileMode
}

func (o Chmod) String() string { return fmt.Sprintf("chmod %q %#o", o.Dest, unixPerm(o.Perm)) }

// RemountRO makes the mount at Dest what a bind in mode ReadOnly is, without
// what is mounted below.
type RemountRO struct{ Dest string }

func (o RemountRO) String() string { return fmt.Sprintf("remount %q read-only", o.Dest) }

// An Overlay stacks directories of the host.
type Overlay struct {
	Dest string
	// Lower are read-only layers, the lowest first.
	Lower []string
	// Upper takes what the guest writes; Work is an empty directory on the
	// same file system. With both empty, writes go to memory and are lost,
	// unless ReadOnly is set, which allows no writes and needs two layers.
	Upper, Work string
	ReadOnly    bool
	// Size limits an upper layer in memory in bytes; zero leaves the
	// kernel's limit.
	Size int64
}

func (o Overlay) String() string {
	top := "upper in memory"
	switch {
	case o.ReadOnly:
		top = "read-only"
	case o.Upper != "":
		top = fmt.Sprintf("upper %q", o.Upper)
	}
	return fmt.Sprintf("overlay at %q, %s, over %q", o.Dest, top, o.Lower)
}

func perm(p *fs.FileMode, def uint32) uint32 {
	if p == nil {
		return def
	}
	return unixPerm(*p)
}

// unixPerm accepts both Go's and Unix's places for the three special bits.
func unixPerm(m fs.FileMode) uint32 {
	p := uint32(m) & 0o7777
	if m&fs.ModeSetuid != 0 {
		p |= 0o4000
	}
	if m&fs.ModeSetgid != 0 {
		p |= 0o2000
	}
	if m&fs.ModeSticky != 0 {
		p |= 0o1000
	}
	return p
}

// Perm returns a pointer for the optional Perm fields.
func Perm(m fs.FileMode) *fs.FileMode { return &m }
