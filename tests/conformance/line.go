//go:build linux

package main

import (
	"fmt"
	"strconv"
	"strings"
)

// parseLine splits a command line of the tables into words. It is the shell's splitting at its simplest, with
// one addition for the descriptors that bwrap takes so many of:
//
//	'…'           one word, taken literally, possibly empty
//	$W $PROBE $IMPL   the scratch directory, the probe on the host, the directory of the implementation
//	$R            --ro-bind / / --dev /dev --proc /proc
//	{kind:text}   the number of a descriptor made for this launch, see [descriptorKinds]
//	{x=kind:text} the same and {x} refers to it again; if x is a number, it is the descriptor's number
//
// In text the escapes of Go strings apply, and \0 for NUL.
func parseLine(line string, names map[string]string) ([]word, error) {
	line = strings.ReplaceAll(line, "$R", "--ro-bind / / --dev /dev --proc /proc")
	var words []word
	var current word
	started := false
	flush := func() {
		if started {
			words = append(words, current)
		}
		current, started = nil, false
	}
	for len(line) > 0 {
		switch c := line[0]; c {
		case ' ', '\t', '\n':
			flush()
			line = line[1:]
		case '\'':
			end := strings.IndexByte(line[1:], '\'')
			if end < 0 {
				return nil, fmt.Errorf("no closing quote in %q", line)
			}
			current, started = append(current, part{text: line[1 : 1+end]}), true
			line = line[end+2:]
		case '$':
			name := line[1:]
			if end := strings.IndexFunc(name, func(r rune) bool { return r < 'A' || r > 'Z' }); end >= 0 {
				name = name[:end]
			}
			value, ok := names[name]
			if !ok {
				return nil, fmt.Errorf("nothing is called $%s", name)
			}
			current, started = append(current, part{text: value}), true
			line = line[1+len(name):]
		case '{':
			end := strings.IndexByte(line, '}')
			if end < 0 {
				return nil, fmt.Errorf("no closing brace in %q", line)
			}
			d, err := parseDescriptor(line[1:end])
			if err != nil {
				return nil, err
			}
			for name, value := range names {
				d.text = strings.ReplaceAll(d.text, "$"+name, value)
			}
			current, started = append(current, part{descriptor: &d}), true
			line = line[end+1:]
		default:
			end := strings.IndexAny(line, " \t\n'${")
			if end < 0 {
				end = len(line)
			}
			current, started = append(current, part{text: line[:end]}), true
			line = line[end:]
		}
	}
	flush()
	return words, nil
}

// A word is its parts put together.
type word []part

// A part is text or the number of a descriptor.
type part struct {
	text       string
	descriptor *descriptor
}

// A descriptor says what to open. A reference to an earlier one has no kind.
type descriptor struct{ name, kind, text string }

func parseDescriptor(s string) (d descriptor, err error) {
	head, text, hasText := strings.Cut(s, ":")
	d.name, d.kind, _ = strings.Cut(head, "=")
	switch {
	case !strings.Contains(head, "=") && (hasText || descriptorKinds[head] != nil):
		d.name, d.kind = "", head
	case d.kind == "":
		return d, nil
	}
	if descriptorKinds[d.kind] == nil {
		return d, fmt.Errorf("no kind of descriptor is called %q", d.kind)
	}
	escaped := strings.NewReplacer(`\0`, `\x00`, `"`, `\"`, "\n", `\n`).Replace(text)
	if d.text, err = strconv.Unquote(`"` + escaped + `"`); err != nil {
		return d, fmt.Errorf("the text of {%s}: %w", s, err)
	}
	return d, nil
}
