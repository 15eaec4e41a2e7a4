//go:build linux

package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
)

// A Difference is one field in which two reports differ.
type Difference struct {
	// Field is a path such as Guest.Mounts[/proc].Options.
	Field string
	A, B  string
}

func (d Difference) String() string { return fmt.Sprintf("%s: %s | %s", d.Field, d.A, d.B) }

// Diff compares two reports field by field.
func Diff(a, b *Report) []Difference {
	var c collector
	cmp.Equal(a, b, cmp.Reporter(&c),
		cmp.Comparer(func(a, b []string) bool { return slices.Equal(a, b) }),
		cmp.Comparer(func(a, b []int) bool { return slices.Equal(a, b) }),
		cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".StderrText" }, cmp.Ignore()),
	)
	slices.SortFunc(c.found, func(a, b Difference) int { return strings.Compare(a.Field, b.Field) })
	return c.found
}

// collector is a [cmp.Reporter].
type collector struct {
	path  cmp.Path
	found []Difference
}

func (c *collector) PushStep(step cmp.PathStep) { c.path = append(c.path, step) }
func (c *collector) PopStep()                   { c.path = c.path[:len(c.path)-1] }

func (c *collector) Report(result cmp.Result) {
	if result.Equal() {
		return
	}
	field := ""
	for _, step := range c.path {
		switch step := step.(type) {
		case cmp.StructField:
			field += "." + step.Name()
		case cmp.MapIndex:
			field += fmt.Sprintf("[%v]", step.Key())
		case cmp.SliceIndex:
			field += fmt.Sprintf("[%d]", step.Key())
		}
	}
	a, b := c.path.Last().Values()
	c.found = append(c.found, Difference{strings.TrimPrefix(field, "."), show(a), show(b)})
}

func show(v reflect.Value) string {
	switch {
	case !v.IsValid():
		return "absent"
	case v.Kind() == reflect.Pointer && v.IsNil():
		return "none"
	case v.Kind() == reflect.Pointer:
		return "present"
	case v.Kind() == reflect.String:
		return fmt.Sprintf("%q", v.String())
	}
	return fmt.Sprintf("%+v", v.Interface())
}
