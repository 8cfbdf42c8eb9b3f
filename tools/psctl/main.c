// SPDX-License-Identifier: Apache-2.0
//
// psctl: shows and steers a cluster of psd, and runs a whole job on one machine.
#include "config.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/self.h"
#include "common/file/output.h"
#include "tools/psctl/cluster.h"
#include "tools/psctl/psctl.h"

static const struct command commands[] = {
    {"run", "FILE", 1, 1, "train a job on this machine, psd and all",
     "  --ps N           ps tasks (2)\n"
     "  --workers M      workers (2)\n"
     "  --min-workers K  go on while so many workers live (default: as the job says)\n"
     "  --set KEY=VALUE  instead of what the job's file says; may be repeated\n"
     "  --summary FILE   where the chief writes the job's results, as JSON\n"
     "  --timeline FILE  what takes how long, as Chrome traces: t.json, t-1.json, ...\n"
     "  --http ADDRESS   a status page for browsers at this host:port, as psd --http\n"
     "  --resume         go on from the job's newest checkpoint\n"
     "  --keep-dir       leave the directory of sockets and say where it is\n"
     "FILE is a job's YAML file. A one_device, mirrored or central_storage job is one\n"
     "workerd, one of multi_worker_mirrored has no psd. Exit code 0: the job has\n"
     "finished; others: psctl(1).\n",
     command_run, TAKES_NONE},
    {"plan", "FILE", 1, 1, "what would lie where and need how much memory",
     "  --ps N           ps tasks (2)\n"
     "  --workers M      workers (2)\n"
     "  --memory BYTES   what each psd is given (K, M, G, T): does the job fit?\n"
     "  --vars           what each variable costs, too\n"
     "  --set KEY=VALUE  instead of what the job's file says; may be repeated\n"
     "  --json           for programs; with the variables\n"
     "FILE is a job's YAML file. rounds: the gradients that an open round of a sync\n"
     "job holds. dedup: what is kept so that no request is applied twice, once each\n"
     "worker has pushed to every block.\n",
     command_plan, TAKES_JSON},
    {"submit",
     "FILE",
     1,
     1,
     "queue a job for the workers that wait for one",
     "  --priority N     before those of lower ones, -1000 to 1000 (0)\n"
     "  --workers M      workers (those of the cluster)\n"
     "  --set KEY=VALUE  instead of what the job's file says; may be repeated\n"
     "  --wait           until it ends: shows its output; the exit code is the job's\n"
     "FILE is a job's YAML file. Its paths have to lead workers to the same files.\n"
     "Needs psd --queue FOLDER at ps task 0, and workerd without --job.\n",
     command_submit,
     TAKES_CLUSTER,
     {"submit, slurm FILE", "queue a job for waiting workers; for Slurm's nodes"}},
    {"slurm",
     "FILE [-- SBATCH-OPTIONS]",
     1,
     1,
     "queue a job for nodes of a Slurm cluster",
     "  -N, --nodes N    nodes, with a worker each (1, or as many as servers)\n"
     "  --ps-tasks K     servers, on the first K of them (1)\n"
     "  --set KEY=VALUE  instead of what the job's file says; may be repeated\n"
     "  --munge          munge in place of certificates; nothing is encrypted\n"
     "  --dry-run        show the command line of sbatch, and end\n"
     "  --script FILE    not the installed paramserver.sbatch\n"
     "FILE is a job's YAML file, checked before it is queued. Cores and GPUs of a\n"
     "worker are as its threads and devices say. What stands behind -- is for sbatch,\n"
     "and the last word: -- --time=2:00:00 --ntasks-per-node=4.\n",
     command_slurm,
     TAKES_NONE,
     {""}},
    {"queue",
     "[JOB]",
     0,
     1,
     "jobs that were submitted, and how they ended",
     "In the order of their turns; those that have ended for a week, the last 100.\n"
     "JOB is a number or a name. there: of its workers those that wait or train.\n",
     command_queue,
     TAKES_CLUSTER,
     {"queue, cancel, logs JOB", "what was submitted; end one; its output"}},
    {"cancel",
     "JOB",
     1,
     1,
     "take a job off the queue, or end it",
     "  --forget         one that has ended is not kept any more, nor what it said\n"
     "JOB is a number or a name. Workers that train it keep what they have.\n",
     command_cancel,
     TAKES_CLUSTER,
     {""}},
    {"logs",
     "JOB",
     1,
     1,
     "what a submitted job's workers have written",
     "  -f, --follow     until it ends; the exit code is then the job's\n"
     "JOB is a number or a name, of several the one that runs, else the latest.\n"
     "The last 256 KiB are kept.\n",
     command_logs,
     TAKES_CLUSTER,
     {""}},
    {"status", "[JOB]", 0, 1, "the ps tasks and the jobs they serve", NULL, command_status, TAKES_CLUSTER},
    {"jobs", "[JOB]", 0, 1, "jobs with all counts, the queue; of one, its rule", NULL, command_jobs, TAKES_CLUSTER},
    {"shards", "[JOB]", 0, 1, "per ps task and job: what it owns, how busy it is", NULL, command_shards, TAKES_CLUSTER},
    {"vars",
     "JOB",
     1,
     1,
     "a job's variables: shape, place, rule, version",
     NULL,
     command_vars,
     TAKES_CLUSTER,
     {"vars, workers JOB", "a job's variables; its workers: step, speed, loss"}},
    {"workers", "JOB", 1, 1, "a job's workers: state, step, speed, loss", NULL, command_workers, TAKES_CLUSTER, {""}},
    {"waits",
     "[JOB]",
     0,
     1,
     "who waits, for what, for whom, since when",
     NULL,
     command_waits,
     TAKES_CLUSTER,
     {"waits, trace [JOB]", "who waits, for what, for whom; who has waited"}},
    {"trace",
     "[JOB]",
     0,
     1,
     "what requests have waited for, for whom, how long",
     "  --events         each wait, the latest first\n"
     "  --timeline FILE  the waits of workers as a Chrome trace, for ui.perfetto.dev\n"
     "Of each job the last 1024 waits at each ps task. of whom: the worker whose call\n"
     "or departure ended most of the waiting, and its share of that. of the time:\n"
     "that there is from the first of a job's waits at the ps task to the last's end.\n",
     command_trace,
     TAKES_CLUSTER,
     {""}},
    {"top", "[JOB]", 0, 1, "a live screen of tasks, jobs, workers; q quits",
     "  --interval S     seconds between two looks (1)\n"
     "  --once           one look, then end\n"
     "Where standard output is no terminal, looks follow each other as text.\n",
     command_top, TAKES_CLUSTER},
    {"doctor", "[JOB]", 0, 1, "who is missing, and why; what is wrong; what to do",
     "  --nagios         as a plugin of Nagios or Icinga: exit code 0 OK, 1 WARNING,\n"
     "                   2 CRITICAL, 3 UNKNOWN\n"
     "  --report FILE    one to send to who helps; - is standard output\n"
     "One line per ps task, job and worker that is not well, with what to do.\n"
     "Exit code 0: all well; 69: something cannot be reached; 78: something is\n"
     "set up wrong; 75: a job has failed.\n",
     command_doctor, TAKES_CLUSTER},
    {"get",
     "JOB VARIABLE [FILE]",
     2,
     3,
     "a variable's value, in short or into a .npy file",
     "  --rows A:B         rows A to B - 1 alone\n"
     "  -o, --output FILE  the same as FILE; - is standard output\n"
     "bfloat16 is written as float32, strings as NumPy's S.\n",
     command_get,
     TAKES_CLUSTER,
     {"get, put JOB VARIABLE [FILE]", "a variable's value, in short or as a .npy file"}},
    {"put",
     "JOB VARIABLE FILE",
     3,
     3,
     "a variable's value from a .npy file",
     "  --rows A:B       rows A to B - 1 alone\n"
     "FILE - is standard input. Its type and shape must be the variable's; slots\n"
     "and steps stay. For bfloat16 it is float32, for strings NumPy's S.\n",
     command_put,
     TAKES_CLUSTER,
     {""}},
    {"save",
     "JOB FILE",
     2,
     2,
     "all weights of a job now, as safetensors",
     "Of a job that runs or has ended, be it by a failure: float32, or float64 where\n"
     "a variable is that; what are no floats is left out.\n"
     "workerd --evaluate and --predict take such a file, as Python's safetensors does.\n"
     "FILE - is standard output, where then nothing else appears.\n",
     command_save,
     TAKES_CLUSTER,
     {"save, restore JOB FILE", "a job's weights into a file; back from one"}},
    {"restore",
     "JOB FILE",
     2,
     2,
     "a job's weights from a checkpoint, or from what save wrote",
     "FILE has all variables of the job that are floats, under their names. Where it\n"
     "has what the optimizer keeps, too, as a checkpoint does, that and the number of\n"
     "its steps are restored. Of a job that runs or is done; gradients that are under\n"
     "way change these weights. To begin a training there, its job says resume.\n",
     command_restore,
     TAKES_CLUSTER,
     {""}},
    {"checkpoint", "JOB", 1, 1, "write a checkpoint now, with all to go on from",
     "  --wait-max S     at most so long (600)\n"
     "The job's chief writes it after its step, where the job has the callback\n"
     "checkpoint or backup, and the training goes on. Says where it is.\n",
     command_checkpoint, TAKES_CLUSTER},
    {"set-lr",
     "JOB VALUE",
     2,
     2,
     "change a job's learning rate while it runs",
     "  --round N        in that round of a sync job; else the next that is possible\n"
     "Shows, for every ps task, from which round on it holds.\n",
     command_set_lr,
     TAKES_CLUSTER,
     {"set-lr, set JOB [NAME=]VALUE", "change a hyperparameter while the job runs"}},
    {"set",
     "JOB NAME=VALUE",
     2,
     2,
     "change any hyperparameter while it runs",
     "  --round N        in that round of a sync job; else the next that is possible\n"
     "psctl jobs JOB lists the names.\n",
     command_set,
     TAKES_CLUSTER,
     {""}},
    {"set-mode", "JOB MODE", 2, 2, "async, ssp or sync from the next epoch on",
     "  --staleness N    ssp: steps that a worker may be ahead of the slowest\n"
     "Of a running parameter_server job; the last one before the epoch ends holds.\n"
     "To sync: refused where a ps task lacks memory for the gradients of rounds.\n",
     command_set_mode, TAKES_CLUSTER},
    {"drain", "ps:N | JOB worker:R", 1, 2, "before maintenance: no new jobs; ask to leave",
     "  --undo           take that back\n"
     "  --wait           until nothing runs there any more, or the worker has left\n"
     "  --wait-max S     at most so long (3600)\n"
     "Running jobs go on. A worker leaves after its step.\n",
     command_drain, TAKES_CLUSTER},
    {"stop", "JOB", 1, 1, "end a job and forget its variables", NULL, command_stop, TAKES_CLUSTER},
    {"verify", "FILE | FOLDER", 1, 1, "whether checkpoints are what was written",
     "  --json           for programs\n"
     "Reads each checkpoint whole and compares it with its checksums. Exit code 0:\n"
     "all are as they were written; 65: one is damaged, and where, or FILE is no\n"
     "checkpoint; 66: there is none.\n",
     command_verify, TAKES_JSON},
    {"tls", "ACTION FOLDER [ROLE]", 2, 3, "certificates: init, issue, show",
     "  --user NAME        whose: jobs of one user are no other's (default: as the one\n"
     "                     before; else who asks)\n"
     "  --days N           for so long (365)\n"
     "  -o, --output FILE  issue: not into the folder\n"
     "  --json             show: for programs\n"
     "ACTION init makes an authority, and a certificate for each role; issue\n"
     "another one: of psd, worker or admin. Running processes take up new files.\n"
     "show's exit code is 78 where one does not do, or ends within two weeks.\n",
     command_tls, TAKES_JSON},
    {"check-build", "", 0, 0, "what this build and machine have; what is missing",
     "  --json           for programs\n"
     "[x]: it is there; [ ]: it is not, and what to install or configure. Of the\n"
     "workerd that psctl run starts ($WORKERD may name another). Exit code 0.\n",
     command_check_build, TAKES_JSON},
    {"cheat", "", 0, 0, "what to type when, on one screen", NULL, command_cheat, TAKES_NONE, {""}},
    {"help", "[COMMAND]", 0, 1, "this text, or a command's own", NULL, command_help, TAKES_NONE},
};

enum { COMMANDS = sizeof commands / sizeof commands[0] };

// A screen of 24 lines; the last commands, cheat and help, are in the first one.
static void psctl_help(FILE *to)
{
    fprintf(to, "usage: psctl [OPTIONS] COMMAND ...; help COMMAND: more of one; cheat: by use\n");
    for (int i = 0; i + 1 < COMMANDS; i++) {
        const struct command *c = &commands[i];
        const char *names = c->listed.names;
        if (names && !*names)
            continue;
        const int n = names ? fprintf(to, "  %s", names) : fprintf(to, "  %-7s %s", c->name, c->operands);
        fprintf(to, "%*s%s\n", n > 28 ? 2 : 30 - n, "", names ? c->listed.summary : c->summary);
    }
    fprintf(to, "  --cluster FILE, --ps A,B,C  ($PSCTL_CLUSTER, $TF_CONFIG)   --tls FOLDER\n"
                "  --munge   --timeout S  for each answer (5)   --json   --help   --version\n");
}

static const struct command *command_find(const char *name)
{
    const char *names[COMMANDS];
    for (int i = 0; i < COMMANDS; i++) {
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
        names[i] = commands[i].name;
    }
    const char *near = ps_nearest(name, names, COMMANDS);
    fprintf(stderr, "psctl: unknown command %s", name);
    if (near)
        fprintf(stderr, ", did you mean %s?\n", near);
    else
        fprintf(stderr, "; psctl --help lists the known ones\n");
    return NULL;
}

int command_help(struct call *call)
{
    int exit_code;
    if (!call_parse(call, NULL, 0, &exit_code))
        return exit_code;
    const struct command *command = call->argc ? command_find(call->argv[0]) : NULL;
    if (call->argc && !command)
        return PS_EXIT_USAGE;
    if (command)
        call_help(command);
    else
        psctl_help(stdout);
    return 0;
}

// Options before a command that would not look at them.
static int check_target(const struct call *call)
{
    const struct target *t = &call->target;
    const struct command *command = call->command;
    const char *stray = t->file      ? "cluster"
                        : t->ps      ? "ps"
                        : t->tls     ? "tls"
                        : t->munge   ? "munge"
                        : t->timeout ? "timeout"
                                     : NULL;
    if (stray && command->takes != TAKES_CLUSTER)
        return call_wrong(call, "--%s before %s does not go with it: it asks no cluster", stray, command->name);
    if (t->json && command->takes == TAKES_NONE)
        return call_wrong(call, "--json before %s does not go with it: it shows no tables", command->name);
    return 0;
}

static int psctl_run(int argc, char **argv)
{
    struct call call = {0};
    bool version = false;
    const struct cli_option options[] = {TARGET_OPTIONS(&call.target),
                                         {.name = "version", .letter = 'V', .flag = &version}};
    int first;
    enum cli_result result = cli_parse("psctl", argc, argv, options, sizeof options / sizeof options[0], true, &first);
    if (result == CLI_WRONG)
        return PS_EXIT_USAGE;
    if (result == CLI_HELP) {
        psctl_help(stdout);
        return 0;
    }
    if (version) {
        puts("psctl " PACKAGE_VERSION);
        return 0;
    }
    if (first == argc) {
        psctl_help(stderr);
        return PS_EXIT_USAGE;
    }
    call.command = command_find(argv[first]);
    if (!call.command)
        return PS_EXIT_USAGE;
    call.argc = argc - first;
    call.argv = argv + first;
    int exit_code = check_target(&call);
    return exit_code ? exit_code : call.command->run(&call);
}

int main(int argc, char **argv)
{
    ps_self_begin(argc);
    ps_alloc_tune();
    signal(SIGXFSZ, SIG_IGN);  // what cannot be written is an error like others
    // An answer that was not read to its end is none. The command's own code goes before.
    return ps_output_end_stdout("psctl", psctl_run(argc, argv));
}
