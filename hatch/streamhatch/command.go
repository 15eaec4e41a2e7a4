package streamhatch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// DefaultPath is the PATH of a command that has no Env.
const DefaultPath = "/usr/local/bin:/usr/bin:/bin"

// A Command is what a connection becomes the standard input and output of. It is
// a value, which may serve any number of connections, and a [Handler] that
// gives every connection this command.
//
// Nothing of it comes from the guest, and nothing from the surroundings of this
// process that it does not name: neither environment, nor directory, nor a
// controlling terminal, nor a descriptor. Set-user-ID programs have no effect.
type Command struct {
	// Args is the program, looked up along the PATH in Env if it has no slash,
	// and its arguments.
	Args []string
	// Env is its whole environment, PATH=DefaultPath if nil.
	Env []string
	// Dir is its working directory, absolute, "/" if empty.
	Dir string
	// Stderr is its standard error; nil discards that. Diagnostics quote paths
	// of the host, so a pipe or a socket, which may lead to the guest or to
	// nobody, is refused, unless it is this process's own standard error.
	Stderr *os.File
	// Files become its descriptors 3 and up.
	Files []*os.File
	// User runs it as another user, which only root can ask for. It then has no
	// supplementary groups.
	User *User
	// Sandbox, if not nil, puts it behind a wall of its own.
	Sandbox *Sandbox

	adopted    *exec.Cmd
	adoptedFor os.FileInfo // the socket it was started with
	err        error       // of the function that made it
}

// A User is a user and a group of the host.
type User struct{ UID, GID uint32 }

// A Sandbox is a wall around a command: no network, no capabilities, a filter on
// system calls, and a file system that has, read-only, the host's system
// directories (/usr and what belongs to it), an empty /tmp, and Binds.
type Sandbox struct{ Binds []Bind }

// A Bind makes a file or directory of the host, with all that is mounted below
// it, appear in a Sandbox.
type Bind struct {
	Host     string // absolute; symbolic links are followed
	Path     string // where it appears, absolute; the same as Host if empty
	Writable bool
}

func (b Bind) path() string {
	if b.Path == "" {
		return b.Host
	}
	return b.Path
}

// Exec is the command args with nothing but defaults.
func Exec(args ...string) *Command { return &Command{Args: args} }

// Handle implements [Handler].
func (c *Command) Handle(context.Context, *Stream) (*Command, error) { return c, nil }

// Validate returns all problems of the command, joined; each is a
// [*CommandError].
func (c *Command) Validate() error {
	if c.err != nil {
		return c.err
	}
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, &CommandError{Field: field, Reason: fmt.Sprintf(format, args...)})
	}
	if c.adopted == nil && (len(c.Args) == 0 || c.Args[0] == "") {
		bad("Args", "is empty; it must begin with the program")
	}
	for _, f := range []struct {
		field string
		vals  []string
	}{{"Args", c.Args}, {"Env", c.Env}, {"Dir", []string{c.Dir}}} {
		for _, v := range f.vals {
			if strings.IndexByte(v, 0) >= 0 {
				bad(f.field, "contains a NUL byte")
			}
		}
	}
	for i, e := range c.Env {
		if name, _, ok := strings.Cut(e, "="); !ok || name == "" {
			bad("Env", "entry %d is not of the form NAME=value", i)
		}
	}
	if c.Dir != "" && !filepath.IsAbs(c.Dir) {
		bad("Dir", "%q is not absolute", c.Dir)
	}
	if reason := unfitForStderr(c.Stderr); reason != "" {
		bad("Stderr", "%s", reason)
	}
	for i, f := range c.Files {
		if f == nil {
			bad("Files", "entry %d is nil", i)
		}
	}
	if c.User != nil && os.Geteuid() != 0 {
		bad("User", "needs this process to be root's")
	}
	if c.Sandbox != nil {
		for i, b := range c.Sandbox.Binds {
			if !filepath.IsAbs(b.Host) || !filepath.IsAbs(b.path()) {
				bad("Sandbox", "bind %d of %q at %q is not absolute", i, b.Host, b.path())
			}
		}
	}
	return errors.Join(errs...)
}

func unfitForStderr(f *os.File) string {
	if f == nil {
		return ""
	}
	info, err := f.Stat()
	if err != nil {
		return "is not an open file: " + err.Error()
	}
	if own, err := os.Stderr.Stat(); err == nil && os.SameFile(own, info) {
		return ""
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		return "is a directory"
	case mode&os.ModeNamedPipe != 0:
		return "is a pipe: when nobody drains it, the command blocks for ever; use a file"
	case mode&os.ModeSocket != 0:
		return "is a socket: the guest's would show it diagnostics with paths of the host; use a file"
	}
	return ""
}

// FromCmd makes a Command of an [exec.Cmd].
//
// One that has not been started is taken over with its program, arguments,
// environment, directory, Stderr, ExtraFiles and, in SysProcAttr, Credential
// without Groups. It has the defaults of package exec for those, which are
// the environment and the directory of this process, and runs as every Command
// does. It must not be started any more.
//
// One that runs already is adopted for the connection that it was started for,
// by the handler, with [Stream.File], still open, as its Stdin and Stdout. It is in no
// namespace of its own: what it leaves behind is ended only if it has not left
// the process group that SysProcAttr.Setpgid or Setsid gave it. When it ends the
// connection is shut down, so nothing that is left can hold that. The hatch
// waits for it; the caller must not.
//
// The error is a [*CommandError] for what cannot be honoured: a Stderr that is
// not a file, a Cancel function (as of [exec.CommandContext]; the hatch ends the
// command), other system attributes.
func FromCmd(cmd *exec.Cmd) (*Command, error) {
	c := &Command{Args: cmd.Args}
	var err error
	if cmd.Process != nil {
		c.adopted = cmd
		err = c.adopt(cmd)
	} else {
		err = c.takeOver(cmd)
	}
	if err == nil {
		err = c.Validate()
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Command) takeOver(cmd *exec.Cmd) error {
	if cmd.Err != nil {
		return &CommandError{"Args", "cannot be found: " + cmd.Err.Error(), cmd.Err}
	}
	if cmd.Stdin != nil || cmd.Stdout != nil {
		return &CommandError{Field: "Stdin", Reason: "and Stdout must be nil: they become the connection"}
	}
	if cmd.Cancel != nil || cmd.WaitDelay != 0 {
		return &CommandError{Field: "Cancel", Reason: "and WaitDelay must not be set: the hatch ends the command; use exec.Command"}
	}
	path, err := filepath.Abs(cmd.Path)
	if err != nil {
		return &CommandError{"Args", "cannot be found: " + err.Error(), err}
	}
	dir, err := filepath.Abs(cmd.Dir)
	if err != nil {
		return &CommandError{"Dir", "cannot be made absolute: " + err.Error(), err}
	}
	c.Args = append([]string{path}, cmd.Args[min(1, len(cmd.Args)):]...)
	c.Env, c.Dir, c.Files = cmd.Environ(), dir, cmd.ExtraFiles
	if err := c.takeStderr(cmd); err != nil {
		return err
	}
	return c.takeSysProcAttr(cmd.SysProcAttr)
}

func (c *Command) takeStderr(cmd *exec.Cmd) error {
	if cmd.Stderr == nil {
		return nil
	}
	f, ok := cmd.Stderr.(*os.File)
	if !ok {
		return &CommandError{Field: "Stderr", Reason: "is not a file: it would need a pipe, and somebody to drain it"}
	}
	c.Stderr = f
	return nil
}
