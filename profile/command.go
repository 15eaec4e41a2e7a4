package profile

import (
	"errors"
	"fmt"
	"strings"
)

// A Command is what to run in a sandbox, for its RunCommand and StartCommand.
// Most callers need only Run, RunBash and RunPython.
type Command struct {
	// Args is the program, looked up along the guest's PATH if it has no
	// slash, and its arguments. With Python it is the arguments alone.
	Args []string
	// Python, if not empty, is code for Profile.Python to run, as "python -u
	// FILE" does. It is of any size, and no process list or environment
	// shows it.
	Python string
	// Env is added to Profile.Env; an entry replaces one of the same name.
	Env []string

	// Input is what standard input has. Without Input, StdinPipe and
	// Terminal it is empty.
	Input []byte
	// StdinPipe makes Stdin of the process write to standard input.
	StdinPipe bool
	// Terminal, if not nil, gives the command a pseudo-terminal of this size
	// as its controlling terminal, input, output and error stream. The guest
	// has the terminal to itself: no process of the host is attached to it.
	Terminal *WindowSize
}

// A WindowSize is the size of a terminal in characters.
type WindowSize struct{ Rows, Cols uint16 }

// Bash is the command that runs a script with bash -c. For another shell use
// Command{Args: []string{"sh", "-c", script}}.
func Bash(script string) Command { return Command{Args: []string{"bash", "-c", script}} }

// Python is the command that runs code in Profile.Python, with args as
// sys.argv[1:].
func Python(code string, args ...string) Command {
	if code == "" {
		code = "\n" // which does the same
	}
	return Command{Python: code, Args: args}
}

// Plain reports whether all that sets the launch of c apart from those of other
// plain commands is its path, its arguments, its environment and its standard
// streams.
func (c Command) Plain() bool { return c.Python == "" && c.Terminal == nil }

// Validate returns everything about the command that no run could have,
// joined; each is a [*FieldError].
func (c Command) Validate() error {
	v := validator{prefix: "Command."}
	if len(c.Args) == 0 && c.Python == "" {
		v.bad("Args", "is empty; it must begin with the program")
	} else if c.Python == "" && c.Args[0] == "" {
		v.bad("Args[0]", "is empty; it must be the program")
	}
	for i, a := range c.Args {
		if strings.IndexByte(a, 0) >= 0 {
			v.bad(fmt.Sprintf("Args[%d]", i), "contains a NUL byte")
		}
	}
	v.env("Env", c.Env)
	if n := btoi(c.Input != nil) + btoi(c.StdinPipe) + btoi(c.Terminal != nil); n > 1 {
		v.bad("Input", "StdinPipe and Terminal exclude each other")
	}
	return errors.Join(v.errs...)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
