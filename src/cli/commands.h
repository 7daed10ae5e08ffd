/* Every sub-command, one file each; main.c lists them. */
#ifndef PL_CLI_COMMANDS_H
#define PL_CLI_COMMANDS_H

#include "cli/options.h"

extern const pl_command pl_command_inspect;
extern const pl_command pl_command_synth;
extern const pl_command pl_command_plan;
extern const pl_command pl_command_run;
extern const pl_command pl_command_serve;
extern const pl_command pl_command_bench;
extern const pl_command pl_command_cpu;
extern const pl_command pl_command_encode_chat;
extern const pl_command pl_command_parse_output;
extern const pl_command pl_command_provider;
extern const pl_command pl_command_trace;
extern const pl_command pl_command_tokenize;
extern const pl_command pl_command_detokenize;
extern const pl_command pl_command_verify;
extern const pl_command pl_command_version;

#endif
