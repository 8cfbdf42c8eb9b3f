// SPDX-License-Identifier: Apache-2.0
//
// The named numbers of an epoch, by Keras's names and in its order: "accuracy", "loss", then the same of the test
// split, "val_accuracy", "val_loss" (what Keras calls validation data is the test split here). The loop makes them;
// the progress bar, the summary and the callbacks read them.
#ifndef WK_FIGURES_H
#define WK_FIGURES_H

#include <jansson.h>
#include <stddef.h>

#include "workerd/nn/measure.h"

enum { WK_FIGURE_NAME = NN_MEASURE_NAME + 4 };  // with "val_"

// {0} is an empty list.
struct wk_figures {
    size_t n, room;
    struct wk_figure {
        char name[WK_FIGURE_NAME];
        double value;
        bool validation;        // of the test split; an output's name may begin with "val_", too
        enum nn_better better;  // of what is measured
    } * v;                      // [n]
};

// prefix: "", or "val_" of the test split's figures.
void wk_figures_add(struct wk_figures *f, const char *prefix, const char *name, double value);
// In place of the value that there is of this name, if there is one.
void wk_figures_set(struct wk_figures *f, const char *name, double value);
// Those that `of` will tell, without their values.
void wk_figures_name(struct wk_figures *f, const struct nn_measures *of, const char *prefix);
void wk_figures_copy(struct wk_figures *to, const struct wk_figures *from);  // in place of what *to has
void wk_figures_free(struct wk_figures *f);
// Takes those of the test split away.
void wk_figures_drop_validation(struct wk_figures *f);
// Of one name, as an output called val may give one, that of the test split stays, as in Keras.
void wk_figures_prefer_validation(struct wk_figures *f);
// NULL: there is none of that name.
const double *wk_figures_find(const struct wk_figures *f, const char *name);

// In a checkpoint: JSON has neither NaN, which is null, nor infinities, which are "inf" and "-inf". save: a new
// reference. load: false: it is no number.
json_t *wk_number_save(double x);
bool wk_number_load(const json_t *from, double *to);
// A member of a state that was saved as a number. INVALID_ARGUMENT: it is none.
enum ps_code wk_state_real(const json_t *from, const char *key, double *to, struct ps_error *e);
enum ps_code wk_state_count(const json_t *from, const char *key, uint64_t *to, struct ps_error *e);

// As Keras shows it: "0.1234", and nearer to 0 than 0.001 "1.2340e-05".
enum { WK_FIGURE_TEXT = 400 };
const char *wk_figure_text(double value, char text[WK_FIGURE_TEXT]);

// What figures are worked out from: sums over the batches of an epoch, or of an evaluation. {0} is an empty one.
struct wk_meter {
    const struct nn_measures *of;  // NULL: nothing has been added yet
    double *sum;                   // [nn_measures_sums(of)], and then as many that were there before the last batch
};

// Makes room for such sums, all 0, unless there is.
void wk_meter_open(struct wk_meter *m, const struct nn_measures *of);
void wk_meter_add(struct wk_meter *m, const struct nn_result *result);
// Takes the last batch away again; a second time, puts it back.
void wk_meter_take_back(struct wk_meter *m);
// Takes all away, and the memory.
void wk_meter_reset(struct wk_meter *m);
// Appends the figures of what has been added up, none where that is nothing. prefix: "" or "val_".
void wk_meter_figures(const struct wk_meter *m, const char *prefix, struct wk_figures *to);
// The confusion matrices by their names: {"val_confusion_matrix": [[...], ...]}. A new reference.
json_t *wk_meter_matrices(const struct wk_meter *m, const char *prefix);

// For a checkpoint. A new reference. INVALID_ARGUMENT: it was not saved so, or other things were measured.
json_t *wk_meter_save(const struct wk_meter *m);
enum ps_code wk_meter_load(struct wk_meter *m, const struct nn_measures *of, const json_t *from, struct ps_error *e);

#endif
