package postern

import (
	"sync"

	"github.com/populationgenomics/postern-go/nsexec"
)

// templates are the launches of a sandbox that differ in the command only, by
// whether that has an input.
type templates struct {
	mu   sync.Mutex
	made map[bool]*nsexec.Template
}

func hasInput(c Command) bool { return c.Input != nil || c.StdinPipe }

// of returns the template for a command, or nil if there is none.
func (t *templates) of(c Command) *nsexec.Template {
	if !c.Plain() {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.made[hasInput(c)]
}

// start launches a command that spec has been made for.
func (t *templates) start(c Command, spec *nsexec.Spec) (*nsexec.Process, error) {
	tmpl := t.of(c)
	if tmpl == nil {
		// A namespace to join is opened anew for each.
		if !c.Plain() || !spec.Namespaces.Net.IsNew() {
			return nsexec.Start(spec)
		}
		var err error
		if tmpl, err = t.add(c, spec); err != nil {
			return nil, err
		}
	}
	return tmpl.Start(nsexec.Command{
		Path: spec.Path, Args: spec.Args, Env: spec.Env,
		Stdin: spec.Stdin, Stdout: spec.Stdout, Stderr: spec.Stderr,
	})
}

func (t *templates) add(c Command, spec *nsexec.Spec) (*nsexec.Template, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if tmpl := t.made[hasInput(c)]; tmpl != nil { // another launch was faster
		return tmpl, nil
	}
	tmpl, err := nsexec.NewTemplate(spec)
	if err != nil {
		return nil, err
	}
	if t.made == nil {
		t.made = map[bool]*nsexec.Template{}
	}
	t.made[hasInput(c)] = tmpl
	return tmpl, nil
}

func (t *templates) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, tmpl := range t.made {
		tmpl.Close()
	}
	t.made = nil
}
