// Package escape attacks the wall from inside a guest, and from the places a
// guest prepares for its host.
//
// Every attack is made behind the wall of the default [postern.Profile], where
// it must fail in the expected way, and once more with just the layers taken
// away that hold it, where the same code must get through: otherwise it would
// prove nothing. An attack that several layers hold is also made against each
// of them alone.
package escape
