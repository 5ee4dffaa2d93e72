package main

import "fmt"

// several is a number of things, as in "1 record" and "2 records".
func several[N int | uint64](n N, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
