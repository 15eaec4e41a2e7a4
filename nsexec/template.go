//go:build linux

package nsexec

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/populationgenomics/postern-go/internal/stage"
	"github.com/populationgenomics/postern-go/pidone"
	"golang.org/x/sys/unix"
)

// A Command is what one launch of a [Template] runs. The fields are those of
// [Spec].
type Command struct {
	Path                  string
	Args, Env             []string
	Stdin, Stdout, Stderr *os.File
}

// A Template is a spec compiled for any number of launches that differ in what
// they run. A launch from it does what [Start] does, with less work for the
// host. It may be used by several goroutines at once.
type Template struct {
	spec  Spec
	words stage.Mem
	prog  *stage.Program // the outline
	head  []byte         // of the image
	image *os.File
	world world
}

// NewTemplate compiles a spec. Of its Command only matters which of the standard
// streams are given: launches with others are compiled for themselves, as are
// those of commands of more than 64 KiB. The files that the spec refers to must
// stay open, and it must not be changed. It needs an Init, and no Launcher,
// UIDMap, SetPWD or KeepFDs. The caller closes the template.
func NewTemplate(s *Spec) (*Template, error) {
	t := &Template{spec: *s, world: currentWorld(s)}
	for _, bad := range []struct {
		is    bool
		field string
	}{{!s.Init, "Init"}, {s.Launcher != nil, "Launcher"}, {s.UIDMap != nil, "UIDMap"}, {s.SetPWD, "SetPWD"}, {s.KeepFDs, "KeepFDs"}} {
		if bad.is {
			return nil, &SpecError{Field: bad.field, Reason: "does not go with a template"}
		}
	}
	t.spec.Path, t.spec.Args, t.spec.Env = "true", []string{"true"}, nil
	if err := t.spec.Validate(); err != nil {
		return nil, err
	}
	l := &launch{spec: &t.spec, theirs: -1, null: -1} // only for the numbers descriptors have
	defer l.close()
	c, _, err := l.prepare()
	if err != nil {
		return nil, err
	}
	c.late = true
	prog := c.compile()
	linked, err := prog.Image()
	if err != nil {
		return nil, err
	}
	if t.image, err = stage.Seal("postern-stage", linked); err != nil {
		return nil, err
	}
	t.words, t.prog, t.head = c.words, prog.Outline(), bytes.Clone(linked[:stage.HeadSize])
	return t, nil
}

// Close gives back what the template holds. Launches go on; there can be no
// more.
func (t *Template) Close() error { return t.image.Close() }

// Start launches a command. Its errors are those of [Start].
func (t *Template) Start(cmd Command) (*Process, error) {
	s := t.spec
	s.Path, s.Args, s.Env = cmd.Path, cmd.Args, cmd.Env
	s.Stdin, s.Stdout, s.Stderr = cmd.Stdin, cmd.Stdout, cmd.Stderr
	if err := s.validateCommand(); err != nil {
		return nil, err
	}
	words, err := t.block(&s)
	if err != nil {
		return nil, err
	}
	if len(words) > t.words.Size || !t.fits(&s) {
		return Start(&s)
	}
	l, err := newLaunch(&s)
	if err != nil {
		return nil, err
	}
	defer l.close()
	l.prog, l.linked, l.word = t.prog, t.head, words
	if l.image, err = t.dup(); err != nil {
		return nil, err
	}
	_, files, err := l.prepare()
	if err != nil {
		return nil, err
	}
	p, err := l.start(files)
	if errors.Is(err, unix.EMSGSIZE) { // the machine's limit on messages is that low
		return Start(&s)
	}
	return p, err
}

// block is what tells the init of the command.
func (t *Template) block(s *Spec) ([]byte, error) {
	words := pidone.Command{Path: s.Path, Args: s.Args, Env: s.Env, Prefix: execPrefix}.Words()
	return stage.Block(words, stage.MemAddr(t.head, t.words))
}

// fits reports whether the program is still the one that a launch of s would be
// compiled to.
func (t *Template) fits(s *Spec) bool {
	given := func(s *Spec) [3]bool { return [3]bool{s.Stdin != nil, s.Stdout != nil, s.Stderr != nil} }
	return given(s) == given(&t.spec) && t.world.equal(currentWorld(s))
}

// dup returns the image for one launch.
func (t *Template) dup() (*os.File, error) {
	conn, err := t.image.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("nsexec: use a template: %w", err)
	}
	fd := -1
	if conn.Control(func(image uintptr) { fd, err = unix.FcntlInt(image, unix.F_DUPFD_CLOEXEC, 0) }) != nil {
		err = os.ErrClosed
	}
	if err != nil {
		return nil, fmt.Errorf("nsexec: use a template: %w", err)
	}
	return os.NewFile(uintptr(fd), "postern-stage"), nil
}

// A world is what a program depends on besides its spec.
type world struct {
	uid, gid int
	limits   []pidone.Limit
}

func currentWorld(s *Spec) world { return world{unix.Geteuid(), unix.Getegid(), s.limits()} }

func (w world) equal(o world) bool {
	return w.uid == o.uid && w.gid == o.gid && slices.Equal(w.limits, o.limits)
}
