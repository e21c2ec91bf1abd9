"""Use one of calstudy's losses in your own training loop."""

import torch
from torch import nn

import calstudy

generator = torch.Generator().manual_seed(0)
features = torch.randn(512, 8, generator=generator)
labels = (features[:, 0] + 0.5 * torch.randn(512, generator=generator) > 0).long()
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for _ in range(100):
    loss = calstudy.losses.focal(model(features), labels, gamma=2.0)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"focal loss {loss.item():.4f}")
