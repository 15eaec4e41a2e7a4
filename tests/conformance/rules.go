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

// A Rule lists differences between bwrap and postern-launch. In the patterns * stands for any text, and
// everything else for itself.
type Rule struct {
	// Case matches "name as user", Field matches [Difference.Field].
	Case, Field string
	Class       Class
	Reason      string
	// Bwrap are the versions that differ; empty means all.
	Bwrap []string
}

// Rules is the one list of all differences. A difference that no rule matches fails the suite, and so does a
// rule that matches none.
var Rules = []Rule{}

func (r Rule) matches(launch Launch, field, version string) bool {
	return (len(r.Bwrap) == 0 || slices.Contains(r.Bwrap, version)) &&
		globMatch(r.Case, launch.String()) && globMatch(r.Field, field)
}

var globs = map[string]*regexp.Regexp{}

func init() {
	for _, r := range Rules {
		for _, glob := range []string{r.Case, r.Field} {
			globs[glob] = compileGlob(glob)
		}
	}
}

func compileGlob(glob string) *regexp.Regexp {
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

// ruleFor returns the index of the rule that lists a difference from a version of bwrap, -1 if none does.
func ruleFor(rules []Rule, launch Launch, d Difference, version string) int {
	return slices.IndexFunc(rules, func(r Rule) bool { return r.matches(launch, d.Field, version) })
}
