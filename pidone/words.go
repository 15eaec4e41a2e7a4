//go:build linux

package pidone

import (
	"strings"

	"github.com/populationgenomics/postern-go/internal/stage"
)

// The places of a command's words.
const (
	wordArgv = 8 * iota
	wordEnv
	wordPaths   // where the program may be, up to a NULL
	wordScripts // argv of the shell for each
	wordName    // how a message begins, and its length
	wordNameLen
)

// Words are what sets one command apart from another that is launched in the
// same way.
func (c Command) Words() stage.Vec {
	candidates := c.candidates()
	scripts := make(stage.Vec, len(candidates))
	for i, p := range candidates {
		scripts[i] = stage.Strings(append([]string{"/bin/sh", p}, tail(c.Args)...))
	}
	name := printable(c.Prefix + c.Path + ": ")
	return stage.Vec{
		stage.Strings(c.Args), stage.Strings(c.Env), stage.Strings(candidates), scripts,
		stage.Str(name), stage.Imm(len(name)),
	}
}

// words finds the words.
func (c Command) words(b *stage.Builder) stage.Slot {
	at := b.Slot()
	if c.In.Size > 0 {
		b.Load64(at, c.In, stage.Imm(0))
	} else {
		b.Move(at, c.Words())
	}
	return at
}

func tail(args []string) []string {
	if len(args) == 0 {
		return nil
	}
	return args[1:]
}

const defaultPath = "/bin:/usr/bin" // where the C library searches without PATH

// candidates lists where the program may be, in order.
func (c Command) candidates() []string {
	if strings.Contains(c.Path, "/") || c.Path == "" {
		return []string{c.Path}
	}
	search := defaultPath
	for _, e := range c.Env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			search = v
			break
		}
	}
	var cs []string
	for dir := range strings.SplitSeq(search, ":") {
		if dir == "" {
			dir = "."
		}
		cs = append(cs, dir+"/"+c.Path)
	}
	return cs
}
