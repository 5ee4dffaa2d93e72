package main

import "github.com/spf13/cobra"

// errorCode is the exit code of an error of a command. Where a code is also the
// command's result, no error may have it: a gate would take a typing error for
// the result.
func errorCode(cmd *cobra.Command, code int) int {
	switch cmd.CommandPath() {
	case "sallyport policy plan":
		return exitFailed // 2 and 3 are changes
	case "sallyport policy explain":
		return exitUsage // 1 is a denial; as grep has it
	case "sallyport run", "sallyport policy learn":
		return exitSandbox // every other one may be the command's
	}
	return code
}
