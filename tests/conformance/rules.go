//go:build linux

package main

import (
	"regexp"
	"slices"
	"strings"
)

// A Class says why postern-launch does not do what bwrap does.
type Class string

const (
	// Better: bwrap has a bug there.
	Better Class = "better"
	// Deliberate: both ways are right.
	Deliberate Class = "deliberate"
)

// A Rule lists differences between bwrap and postern-launch. In the patterns * stands for any text, everything
// else for itself, and the empty one for everything.
type Rule struct {
	// Case matches "name as user", Field matches [Difference.Field].
	Case, Field string
	// Theirs and Ours match what bwrap and postern-launch do, as [Difference] has it.
	Theirs, Ours string
	Class        Class
	Reason       string
}

func (r Rule) matches(launch Launch, d Difference) bool {
	return globMatch(r.Case, launch.String()) && globMatch(r.Field, d.Field) &&
		globMatch(r.Theirs, d.A) && globMatch(r.Ours, d.B)
}

var globs = map[string]*regexp.Regexp{}

func init() {
	for _, r := range Rules {
		for _, glob := range []string{r.Case, r.Field, r.Theirs, r.Ours} {
			globs[glob] = compileGlob(glob)
		}
	}
}

func compileGlob(glob string) *regexp.Regexp {
	if glob == "" {
		glob = "*"
	}
	parts := strings.Split(glob, "*")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile(`\A(?s:` + strings.Join(parts, ".*") + `)\z`)
}

func globMatch(glob, text string) bool {
	if compiled, ok := globs[glob]; ok {
		return compiled.MatchString(text)
	}
	return compileGlob(glob).MatchString(text)
}

// ruleFor returns the index of the rule that lists a difference, -1 if none does.
func ruleFor(rules []Rule, launch Launch, d Difference) int {
	return slices.IndexFunc(rules, func(r Rule) bool { return r.matches(launch, d) })
}
