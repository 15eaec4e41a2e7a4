package postern

import (
	"errors"
	"sync"

	"github.com/populationgenomics/postern-go/nsexec"
)

// templates are the launches of a sandbox that differ in the command only, by
// whether that has an input.
type templates struct {
	mu sync.Mutex
	of map[bool]*nsexec.Template
}

// start launches a command that spec has been made for.
func (t *templates) start(c Command, spec *nsexec.Spec) (*nsexec.Process, error) {
	// A namespace to join is opened anew for each.
	if !c.Plain() || !spec.Namespaces.Net.IsNew() {
		return nsexec.Start(spec)
	}
	tmpl, err := t.get(spec)
	if err != nil {
		return nil, err
	}
	return tmpl.Start(nsexec.Command{
		Path: spec.Path, Args: spec.Args, Env: spec.Env,
		Stdin: spec.Stdin, Stdout: spec.Stdout, Stderr: spec.Stderr,
	})
}

func (t *templates) get(spec *nsexec.Spec) (*nsexec.Template, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tmpl := t.of[spec.Stdin != nil]
	if tmpl != nil {
		return tmpl, nil
	}
	tmpl, err := nsexec.NewTemplate(spec)
	if err != nil {
		return nil, err
	}
	if t.of == nil {
		t.of = map[bool]*nsexec.Template{}
	}
	t.of[spec.Stdin != nil] = tmpl
	return tmpl, nil
}

func (t *templates) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var errs []error
	for _, tmpl := range t.of {
		errs = append(errs, tmpl.Close())
	}
	t.of = nil
	return errors.Join(errs...)
}
