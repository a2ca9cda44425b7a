/* normalization/remembered_statistics.py, `estimate`: a layer's statistics from its images' moments,
   the memories and the source; with `lean`, `square` and `source_weight` of statistics/leaning.py. */
#include "arrays.h"

#define MOST_MEMORIES 8

typedef struct {
    Py_ssize_t images, moments, row;       /* row: from one of `before` to the next */
    int memories;
    const float *each, *before, *gains;    /* (image, moment), (memory + 1, moment), (memory + 1,) */
    const float *origin, *scale;           /* (2, channel) */
    double uncertainty[MOST_MEMORIES];
    double spread, spread_share, correction, tolerance, least;
    int leans;                             /* whether the source counts */
    float *batch, *mean, *variance;        /* (moment,), (channel,), (channel,) */
    double new_spread, source_weight;
} Estimate;

/* statistics/leaning.py, `share` */
static double share(double part, double whole) {
    if (!(whole > 0)) return whole != whole ? whole : 1.0;
    double found = part / whole;
    return found < 1.0 ? found : 1.0;
}

static double product(const double *one, const double *other, Py_ssize_t count) {
    double sum[4] = {0};
    Py_ssize_t place = 0;
    for (; place + 4 <= count; place += 4)
        for (int lane = 0; lane < 4; lane++) sum[lane] += one[place + lane] * other[place + lane];
    for (; place < count; place++) sum[0] += one[place] * other[place];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* The mean over the images, and their mean squared distance from it. */
static double average(const Estimate *of, double *mean) {
    Py_ssize_t moments = of->moments;
    memset(mean, 0, moments * sizeof(double));
    for (Py_ssize_t image = 0; image < of->images; image++)
        for (Py_ssize_t place = 0; place < moments; place++)
            mean[place] += of->each[image * moments + place];
    for (Py_ssize_t place = 0; place < moments; place++) mean[place] /= of->images;
    if (of->images == 1) return 0.0;
    double scatter = 0;
    for (Py_ssize_t image = 0; image < of->images; image++) {
        double sum[4] = {0};
        const float *own = of->each + image * moments;
        for (Py_ssize_t place = 0; place < moments; place++) {
            double apart = own[place] - mean[place];
            sum[place & 3] += apart * apart;
        }
        scatter += (sum[0] + sum[1]) + (sum[2] + sum[3]);
    }
    return scatter / of->images;
}

/* statistics/leaning.py, `lean` and `square`: what of each step is taken; the sum, squared. */
static double lean(const Estimate *of, double products[MOST_MEMORIES][MOST_MEMORIES],
                   double *taken) {
    double rest[MOST_MEMORIES], gap = 0, squared = 0;
    for (int step = 0; step < of->memories; step++) {
        double across = 0, explained = of->uncertainty[step] * of->new_spread;
        if (step == 0 && !of->leans) explained = 0;
        for (int before = 0; before < step; before++) across += rest[before] * products[step][before];
        gap += 2 * across + products[step][step];
        double stay = share(explained, gap);
        for (int before = 0; before < step; before++) rest[before] *= stay;
        rest[step] = stay;
        gap *= stay * stay;
    }
    for (int step = 0; step < of->memories; step++) {
        double across = 0;
        taken[step] = 1 - rest[step];
        for (int before = 0; before < step; before++)
            across += taken[before] * products[step][before];
        squared += taken[step] * (2 * across + taken[step] * products[step][step]);
    }
    return squared;
}

/* normalization/remembered_statistics.py, `estimate` and `finish` */
static int work_out(Estimate *of) {
    Py_ssize_t moments = of->moments, channels = moments / 2;
    double products[MOST_MEMORIES][MOST_MEMORIES], taken[MOST_MEMORIES];
    double *mean = malloc((of->memories + 2) * moments * sizeof(double));
    if (mean == NULL) return 0;
    double *steps = mean + moments; /* (memory + 1, moment) */
    double within = average(of, mean);
    for (int step = 0; step <= of->memories; step++)
        for (Py_ssize_t place = 0; place < moments; place++)
            steps[step * moments + place] =
                of->before[step * of->row + place] + of->gains[step] * mean[place];
    double *last = steps + of->memories * moments;
    double found = (within + product(last, last, moments)) * of->correction;
    of->new_spread = of->spread + of->spread_share * (found - of->spread);
    for (int step = 0; step < of->memories; step++)
        for (int before = 0; before <= step; before++)
            products[step][before] =
                product(steps + step * moments, steps + before * moments, moments);
    double squared = lean(of, products, taken), weight = 0;
    if (of->leans) {
        weight = share(of->tolerance, squared / moments);
        weight = weight > of->least ? weight : of->least;
    }
    of->source_weight = 1 - (1 - weight) * taken[0];
    for (Py_ssize_t channel = 0; channel < channels; channel++) {
        double first = 0, second = 0;
        for (int step = 0; step < of->memories; step++) {
            double part = (1 - weight) * taken[step];
            first += part * steps[step * moments + channel];
            second += part * steps[step * moments + channels + channel];
        }
        first *= of->scale[channel];
        second = second * of->scale[channels + channel] + of->origin[channels + channel];
        double variance = second - first * first;
        of->mean[channel] = (float)(first + of->origin[channel]);
        of->variance[channel] = (float)(variance > 0 ? variance : variance * 0.0);
    }
    for (Py_ssize_t place = 0; place < moments; place++) of->batch[place] = (float)mean[place];
    free(mean);
    return 1;
}

static int take_all(PyObject *sequence, Estimate *of) {
    if (!PyList_Check(sequence)) return 0;
    Py_ssize_t count = PyList_GET_SIZE(sequence);
    if (count < 1 || count >= MOST_MEMORIES) return 0;
    for (Py_ssize_t each = 0; each < count; each++)
        if (!take(PyList_GET_ITEM(sequence, each), &of->uncertainty[each])) return 0;
    of->memories = (int)count;
    return 1;
}

/* estimate(moments, before, gains, origin, scale, batch, mean, variance,
            uncertainty, spread, spread_share, correction, tolerance, least or None) */
PyObject *estimate(ARGUMENTS) {
    (void)module;
    Floats held[8];
    Estimate of = {0};
    int fits = count == 14 && take_all(given[8], &of), taken = 0;
    fits = fits && take(given[9], &of.spread) && take(given[10], &of.spread_share) &&
           take(given[11], &of.correction) && take(given[12], &of.tolerance);
    of.leans = fits && given[13] != Py_None;
    fits = fits && (!of.leans || take(given[13], &of.least));
    for (; fits && taken < 8; taken++) fits = hold(&held[taken], given[taken], taken >= 5);
    fits = fits && held[0].view.ndim == 2 && held[1].view.ndim == 2 && in_a_row(&held[1].view, 1);
    if (fits) {
        of.images = held[0].view.shape[0];
        of.moments = held[0].view.shape[1];
        of.row = held[1].view.strides[0] / 4;
        fits = of.images > 0 && of.moments % 2 == 0 && of.row >= 0 &&
               is_row(&held[0], of.images * of.moments) &&
               held[1].view.shape[0] == of.memories + 1 && held[1].view.shape[1] == of.moments &&
               is_row(&held[2], of.memories + 1) && is_row(&held[3], of.moments) &&
               is_row(&held[4], of.moments) && is_row(&held[5], of.moments) &&
               is_row(&held[6], of.moments / 2) && is_row(&held[7], of.moments / 2);
    }
    if (fits) {
        of.each = start(&held[0]), of.before = start(&held[1]), of.gains = start(&held[2]);
        of.origin = start(&held[3]), of.scale = start(&held[4]);
        of.batch = start(&held[5]), of.mean = start(&held[6]), of.variance = start(&held[7]);
        Py_BEGIN_ALLOW_THREADS fits = work_out(&of);
        Py_END_ALLOW_THREADS
    }
    let_go(held, taken);
    if (!fits) Py_RETURN_NONE;
    return Py_BuildValue("(dd)", of.new_spread, of.source_weight);
}
