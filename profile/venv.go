package profile

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// WithVenv returns a copy of the profile that also has the Python virtual
// environment at path, at its own path and read-only, and whose Python is the
// environment's. Symbolic links in path are resolved. Nothing is installed at
// run time.
//
// An interpreter that lies outside the system's directories, as those of pyenv,
// uv and conda do, comes along: the directories it is found in, and the lib
// beside them. With a Rootfs or an Overlay, which must be set before, the
// interpreter has to be in there.
func (p Profile) WithVenv(path string) (Profile, error) {
	dir, err := filepath.Abs(path)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return Profile{}, fmt.Errorf("postern: use the virtual environment: %w", err)
	}
	python := filepath.Join(dir, "bin", "python")
	if _, err := os.Lstat(python); err != nil {
		return Profile{}, fmt.Errorf("postern: %s is no virtual environment, it has no bin/python: %w", path, err)
	}
	p.Python = python
	binds := []Bind{{Host: dir}}
	if p.Rootfs == "" && p.Overlay == nil {
		base, err := interpreterDirs(python, dir)
		if err != nil {
			return Profile{}, fmt.Errorf("postern: find the interpreter of the virtual environment %s: %w", path, err)
		}
		binds = append(binds, base...)
	}
	p.RequiredBinds = append(slices.Clip(p.RequiredBinds), binds...)
	return p, nil
}

// interpreterDirs returns what a guest needs besides the environment to follow
// the links from its python to an interpreter and to start that.
func interpreterDirs(python, venv string) ([]Bind, error) {
	var binds []Bind
	add := func(bin string) {
		for _, there := range []string{venv, "/usr", "/lib", "/lib64", "/bin", "/sbin"} {
			if bin == there || strings.HasPrefix(bin, there+"/") {
				return
			}
		}
		// The interpreter looks for its library beside wherever it was found.
		for _, dir := range []string{bin, filepath.Join(filepath.Dir(bin), "lib")} {
			if _, err := os.Stat(dir); err == nil && !slices.Contains(binds, Bind{Host: dir}) {
				binds = append(binds, Bind{Host: dir})
			}
		}
	}
	const maxLinks = 40
	for link, n := python, 0; n < maxLinks; n++ {
		add(filepath.Dir(link))
		target, err := os.Readlink(link)
		if err != nil {
			break
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(link), target)
		}
		link = target
	}
	interpreter, err := filepath.EvalSymlinks(python)
	if err != nil {
		return nil, err
	}
	add(filepath.Dir(interpreter))
	return binds, nil
}
