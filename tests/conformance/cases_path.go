//go:build linux

package main

import "fmt"

// pathCases try every kind of mount on every kind of destination, and every kind of source.
func pathCases() []Case {
	mounts := []struct{ name, line string }{
		{"bind directory", "--bind $W/d"},
		{"bind file", "--ro-bind $W/f2"},
		{"tmpfs", "--tmpfs"},
		{"ro-bind-data", "--ro-bind-data {pipe:data}"},
		{"file", "--file {pipe:data}"},
		{"dir", "--dir"},
	}
	destinations := []struct{ name, path string }{
		{"a directory", "$W/d2"},
		{"a file", "$W/f"},
		{"a link to a directory", "$W/link-d"},
		{"a link to a file", "$W/link-f"},
		{"an absolute link", "$W/link-abs"},
		{"an absolute link to a file", "$W/link-absf"},
		{"a dangling link", "$W/dangling"},
		{"an absolute dangling link", "$W/dangling-abs"},
		{"a link loop", "$W/loop"},
		{"nothing", "$W/new"},
		{"nothing deep", "$W/new/er/est"},
		{"below a link", "$W/link-d/made"},
		{"below an absolute link", "$W/link-abs/made"},
		{"below a dangling link", "$W/dangling/made"},
		{"below a file", "$W/f/made"},
		{"a fifo", "$W/fifo"},
		{"a read-only directory's child", "$W/readonly/made"},
		{"in a search-only directory", "$W/search/d"},
		{"in a private directory", "$W/private/secret"},
		{"with a trailing slash", "$W/d2/"},
		{"a file with a trailing slash", "$W/f/"},
		{"nothing with a trailing slash", "$W/new/"},
		{"with dots", "$W/d2/../d2/."},
	}
	var cases []Case
	for _, m := range mounts {
		for _, d := range destinations {
			if m.name == "file" && d.name == "a fifo" {
				continue // waits for a reader
			}
			cases = append(cases, Case{
				Name: fmt.Sprintf("path/%s on %s", m.name, d.name),
				Line: fmt.Sprintf("--bind / / %s %s $PROBE", m.line, d.path),
			})
		}
	}
	sources := []struct{ name, path string }{
		{"link to a directory", "$W/link-d"},
		{"link to a file", "$W/link-f"},
		{"absolute link", "$W/link-abs"},
		{"dangling link", "$W/dangling"},
		{"link loop", "$W/loop"},
		{"below a file", "$W/f/x"},
		{"directory with a trailing slash", "$W/d/"},
		{"file with a trailing slash", "$W/f/"},
		{"fifo", "$W/fifo"},
		{"private", "$W/private/secret"},
		{"search-only", "$W/search/f"},
		{"search-only directory", "$W/search/d"},
		{"with a space", "'with space'"},
		{"own file descriptor", "/proc/self/fd/{open:$W/d}"},
		{"own root", "/proc/self/root/usr"},
		{"own namespace", "/proc/self/ns/user"},
		{"own cwd", "/proc/self/cwd"},
		{"procfs file", "/proc/version"},
		{"device", "/dev/zero"},
		{"sysfs", "/sys"},
		{"too long", "/" + longName},
	}
	for _, s := range sources {
		for _, option := range []string{"--bind", "--ro-bind-try", "--dev-bind"} {
			cases = append(cases, Case{
				Name: fmt.Sprintf("path/%s of %s", option[2:], s.name),
				Line: fmt.Sprintf("--ro-bind / / --tmpfs /mnt %s %s /mnt/x $PROBE", option, s.path),
			})
		}
	}
	return cases
}

// longName is one byte longer than a file may be called.
var longName = fmt.Sprintf("%0256d", 0)
