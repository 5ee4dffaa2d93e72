package main

import (
	"io"
	"log"
)

// silenceStandardLog makes the standard logger say nothing. What the program
// has to say it says by its own; but net/http's client, which has no other,
// quotes to this one what an upstream sends beyond an answer, and that may
// hold the value of a secret. The standard error of "run" is its command's as
// well.
func silenceStandardLog() { log.SetOutput(io.Discard) }
